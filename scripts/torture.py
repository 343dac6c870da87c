"""Does to commands and files what machines and people do, and counts what survives.

    python scripts/torture.py                          minutes
    python scripts/torture.py -n 20                    hours
    python scripts/torture.py --only kills --seed 7

The counts go to results/torture.json and into docs/guides/robustness.md. Ctrl-C keeps them, too.
Exit code 1: something failed. Needs Linux, and `pip install hypothesis`.
"""

import argparse
import importlib
import json
import platform
import random
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torture_areas import Job

from oversmoothing.errors import InputError, meant
from oversmoothing.launch.script import run_script
from oversmoothing.report.markers import show_in_pages
from oversmoothing.store.checkout import results
from oversmoothing.store.environment import environment
from oversmoothing.store.files import write_text

AREAS = {
    "kills": "kill, terminate, Ctrl-C at random moments of every task",
    "contention": "four processes with overlapping sweeps, some killed",
    "ranks": "one of two training processes killed",
    "full_disk": "full disk",
    "power_loss": "loss of power: ends of files lost, zeros, half-written files",
    "generated": "generated commands",
    "wandb_faults": "W&B that hangs or refuses",
    "fuzzing": "mutated files",
}


class Counts:
    """What was tried and what passed, area by area; written after every area."""

    def __init__(self, seed: int, number: int) -> None:
        env = environment("cpu")
        self.content: dict[str, Any] = {
            "seed": seed,
            "n": number,
            "commit": env["git"],
            "dirty": env["dirty"],
            "torch": env["torch"],
            "machine": f"{env['cpus']} cores, {platform.system()}",
            "areas": {},
        }
        self._lock = threading.Lock()

    @property
    def failed(self) -> int:
        return sum(len(area["failures"]) for area in self.content["areas"].values())

    def begin(self, area: str) -> None:
        self.content["areas"][area] = {"tried": 0, "passed": 0, "seconds": 0, "failures": []}

    def add(self, area: str, name: str, failure: str) -> None:
        with self._lock:
            counted = self.content["areas"][area]
            counted["tried"] += 1
            counted["passed"] += not failure
            if failure:
                counted["failures"].append(f"{name}: {failure}")
                print(f"  FAILED {name}: {failure}", flush=True)

    def table(self) -> str:
        """The counts as Markdown."""
        lines = ["| area | tried | passed |", "|---|---|---|"]
        for area, count in self.content["areas"].items():
            lines.append(f"| {AREAS[area]} | {count['tried']} | {count['passed']} |")
        c = self.content
        return "\n".join([*lines, "", f"Seed {c['seed']}, commit {c['commit']}, {c['machine']}."])


def main() -> int:
    """Tortures; returns 1 if anything failed."""
    options = _arguments()
    if unknown := [area for area in options.only if area not in AREAS]:
        raise InputError(f"--only {unknown[0]}: no such area; {meant(unknown[0], AREAS)}")
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}")
    counts, folder = Counts(seed, options.n), Path(tempfile.mkdtemp(prefix="torture-"))
    stop = threading.Event()
    try:
        for area in options.only or AREAS:
            _area(area, counts, options, random.Random(f"{seed} {area}"), folder / area, stop)
    except KeyboardInterrupt:
        stop.set()
        print("stopped; what has been tried is kept")
    finally:
        _write(counts, options.results or results())
        shutil.rmtree(folder, ignore_errors=True)
    print(counts.table())
    return int(counts.failed > 0)


def _area(
    area: str,
    counts: Counts,
    options: argparse.Namespace,
    drawn: random.Random,
    folder: Path,
    stop: threading.Event,
) -> None:
    counts.begin(area)
    began = time.monotonic()
    try:
        jobs = importlib.import_module(f"torture_areas.{area}").jobs(drawn, options.n, folder)
    except ModuleNotFoundError as error:
        counts.add(area, area, f"needs {error.name}")
        return

    def work(job: Job) -> None:
        if stop.is_set():
            return
        try:
            for name, failure in job():
                counts.add(area, name, failure)
        except Exception as error:  # a fault of the torture itself
            counts.add(area, area, f"{type(error).__name__}: {error}")

    pool = ThreadPoolExecutor(options.jobs)
    try:
        list(pool.map(work, jobs))
    except KeyboardInterrupt:
        stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        counted = counts.content["areas"][area]
        counted["seconds"] = round(time.monotonic() - began)
        said = f"{counted['passed']} of {counted['tried']} passed, {counted['seconds']} s"
        print(f"{area}: {said}", flush=True)


def _write(counts: Counts, folder: Path) -> None:
    text = json.dumps(counts.content, indent=1, ensure_ascii=False) + "\n"
    write_text(folder / "torture.json", text)
    show_in_pages(folder, "torture", counts.table())


def _arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("-n", type=int, default=1, help="how many times as much")
    parser.add_argument("--only", nargs="+", default=[], help=f"areas: {', '.join(AREAS)}")
    parser.add_argument("--seed", type=int, help="of what is drawn; it repeats a failure")
    parser.add_argument("--jobs", type=int, default=2, help="commands side by side")
    parser.add_argument("--results", type=Path, help="folder for torture.json")
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
    sys.exit()
