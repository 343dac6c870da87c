"""Tests commands and files under kills, full disks, power loss and bad input; counts passes.

    python scripts/torture.py                          minutes
    python scripts/torture.py -n 20                    hours
    python scripts/torture.py --only kills --seed 7

The counts are written to outputs/torture.json, or with --publish to results/torture.json and
docs/guides/robustness.md, after every area and on Ctrl-C; areas that are not tried keep theirs.
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
from oversmoothing.lab.launch.flags import add_publish
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import environment
from oversmoothing.lab.store.files import write_text

AREAS = {
    "kills": "kill, terminate, Ctrl-C at random moments of every task",
    "contention": "four processes with overlapping sweeps, some killed",
    "ranks": "one of two training processes killed, also under torchrun",
    "full_disk": "full disk",
    "power_loss": "loss of power: ends of files lost, zeros, half-written files",
    "generated": "generated commands",
    "wandb_faults": "W&B that hangs or refuses",
    "fuzzing": "mutated files",
}


class Counts:
    """The counts of tried and passed trials by area; written after every area.

    Args:
        path: of torture.json. Areas that are not tried now keep their counts.
        seed: of the random numbers.
        number: factor on the default number of trials.
    """

    def __init__(self, path: Path, seed: int, number: int) -> None:
        self.path, self._lock, env = path, threading.Lock(), environment("cpu")
        self.areas = json.loads(path.read_text("utf-8"))["areas"] if path.exists() else {}
        self.failed = 0
        self._how = {"seed": seed, "n": number, "commit": env["git"], "dirty": env["dirty"]}
        self._how |= {"torch": env["torch"], "cores": env["cpus"], "system": platform.system()}

    def begin(self, area: str) -> None:
        """Resets the counts of an area."""
        counts = {"tried": 0, "passed": 0, "seconds": 0}
        self.areas[area] = counts | self._how | {"failures": []}

    def add(self, area: str, name: str, failure: str) -> None:
        """Counts a trial."""
        with self._lock:
            counted = self.areas[area]
            counted["tried"] += 1
            counted["passed"] += not failure
            if failure:
                self.failed += 1
                counted["failures"].append(f"{name}: {failure}")
                print(f"  FAILED {name}: {failure}", flush=True)

    def end(self, area: str, seconds: float) -> None:
        """Writes the counts."""
        counted = self.areas[area]
        counted["seconds"] = round(seconds)
        print(f"{area}: {counted['passed']} of {counted['tried']} passed, {seconds:.0f} s")
        content = {"areas": {name: self.areas[name] for name in AREAS if name in self.areas}}
        write_text(self.path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def table(areas: dict[str, Any]) -> str:
    """Formats the counts as Markdown."""
    lines = ["| area | tried | passed | seed | commit |", "|---|---|---|---|---|"]
    for area, counted in areas.items():
        shown = [counted[key] for key in ("tried", "passed", "seed", "commit")]
        lines.append(f"| {AREAS[area]} | {' | '.join(map(str, shown))} |")
    return "\n".join(lines)


def main() -> int:
    """Runs the areas; returns 1 if anything failed."""
    options = _arguments()
    if unknown := [area for area in options.only if area not in AREAS]:
        raise InputError(f"--only {unknown[0]}: no such area; {meant(unknown[0], AREAS)}")
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}")
    counts = Counts(options.target / "torture.json", seed, options.n)
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    stop = threading.Event()
    try:
        for area in options.only or AREAS:
            _area(area, counts, options, random.Random(f"{seed} {area}"), folder / area, stop)
    except KeyboardInterrupt:
        stop.set()
        print("stopped; what has been tried is kept")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(counts.areas))
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
        counts.end(area, 0)
        return

    def work(job: Job) -> None:
        if stop.is_set():
            return
        try:
            for name, failure in job():
                counts.add(area, name, failure)
        except Exception as error:  # an error in this script
            counts.add(area, area, f"{type(error).__name__}: {error}")

    pool = ThreadPoolExecutor(options.jobs)
    try:
        list(pool.map(work, jobs))
    except KeyboardInterrupt:
        stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        counts.end(area, time.monotonic() - began)


def _arguments() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("-n", type=int, default=1, help="factor on the number of trials")
    parser.add_argument("--only", nargs="+", default=[], help=f"areas: {', '.join(AREAS)}")
    parser.add_argument("--seed", type=int, help="random seed; the same one repeats a failure")
    parser.add_argument("--jobs", type=int, default=2, help="commands side by side")
    add_publish(parser, "--results")
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
    sys.exit()
