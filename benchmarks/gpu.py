"""Uses a GPU for some minutes: runs the queue of gpu.yaml, the most valuable item first.

    python benchmarks/gpu.py --minutes 12
    python benchmarks/gpu.py --plan

An item that has ended without an error is not run again. What is not finished when the time is over
gets an interrupt, as from Ctrl-C, and continues from its last checkpoint the next time. Logs and
the list of finished items are in outputs/gpu, which can be copied from machine to machine.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.script import Parser, run_script
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.store.files import write_text

HERE = Path(__file__).parent
FOLDER = Path("outputs/gpu")  # of logs
GRACE = 30  # seconds in which an interrupted process may save its state
Item = dict[str, Any]


def queue() -> list[Item]:
    """Returns the items: ``name``, ``why``, ``minutes``, ``commands`` (run side by side)."""
    return yaml.safe_load((HERE / "gpu.yaml").read_text("utf-8"))


def run(item: Item, folder: Path, seconds: float) -> bool:
    """Runs the commands of an item side by side; returns whether all ended without an error.

    A command that takes longer gets an interrupt, as do its workers, and ``GRACE`` seconds later a
    kill.
    """
    env = os.environ | ({"OVERSMOOTHING_GPU_TESTS": "1"} if item.get("tests") else {})
    limit = ["timeout", "--signal=INT", f"--kill-after={GRACE}", f"{max(seconds, 0.1):.1f}"]
    started = []
    for number, command in enumerate(item["commands"]):
        words = [sys.executable if word == "python" else word for word in shlex.split(command)]
        with (folder / f"{item['name']}-{number}.log").open("ab") as log:
            how = {"stdout": log, "stderr": subprocess.STDOUT, "cwd": HERE.parent, "env": env}
            started.append(subprocess.Popen([*limit, *words], **how))
    try:
        codes = [process.wait() for process in started]
    except KeyboardInterrupt:
        for process in started:
            process.send_signal(signal.SIGINT)  # timeout hands it on
        raise
    return not any(codes)


def work(items: list[Item], folder: Path, minutes: float) -> None:
    """Runs what has not been done yet, as long as there is time."""
    folder.mkdir(parents=True, exist_ok=True)
    done, until = finished(folder), time.monotonic() + 60 * minutes
    for item in items:
        left = (until - time.monotonic()) / 60
        if done.get(item["name"]) == item["commands"]:
            print(f"{item['name']}: done before", flush=True)
        elif left < (needs := least(item)):
            print(f"{item['name']}: needs {needs} minutes, {left:.1f} are left", flush=True)
        else:
            began = time.monotonic()
            good = run(item, folder, until - began)
            taken = (time.monotonic() - began) / 60
            print(
                f"{item['name']}: {'done' if good else 'not finished'}, {taken:.1f} minutes; "
                f"see {folder}/{item['name']}-0.log",
                flush=True,
            )
            if good:
                done[item["name"]] = item["commands"]
                write_text(folder / "done.json", json.dumps(done, indent=1))


def finished(folder: Path) -> dict[str, list[str]]:
    """Returns the commands of the items that have ended without an error."""
    path = folder / "done.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def least(item: Item) -> float:
    """Returns the minutes with which an item may start."""
    return item.get("at_least", item["minutes"])


def plan(items: list[Item], folder: Path, minutes: float) -> Iterator[str]:
    """Yields a line for every item: what ``work`` would do with it in these minutes."""
    done, left = finished(folder), minutes
    for item in items:
        takes = min(left, item["minutes"])
        if done.get(item["name"]) == item["commands"]:
            what = "done before"
        elif left < least(item):
            what = f"not in these {minutes:g} minutes"
        else:
            what, left = f"gets {takes:g} minutes", left - takes
        yield f"{item['name']:12} {item['minutes']:5g} min, {what}: {item['why']}"


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--minutes", type=float, default=12, help="wall time for all (default: 12)")
    parser.add_argument("--plan", action="store_true", help="print the queue and run nothing")
    args = parser.parse_args()
    items = queue()
    if not args.minutes > 0:
        raise InputError(f"--minutes: expected a number above 0, got {args.minutes:g}")
    if args.plan:
        print(*plan(items, FOLDER, args.minutes), sep="\n")
        return
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)  # workers inherit what is ignored
    device("cuda")  # refused in one line where there is none
    work(items, FOLDER, args.minutes)


if __name__ == "__main__":
    run_script(main)
