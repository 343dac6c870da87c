"""Replaces W&B by one that hangs or refuses; runs must end in time, with result and warning."""

import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torture_areas import Job, Trial
from torture_areas.compare import difference, run_folder
from torture_areas.processes import Started, environment

SECONDS = 60.0  # longest delay of a run
WORDS = [
    *("data.num_nodes=400", "trainer.epochs=40", "trainer.eval_every=5", "seeds=[0]"),
    *("threads=1", "device=cpu"),
]
FAKE = """
import os
import time


class Error(Exception):
    pass


class Settings:
    model_fields = {}

    def __init__(self, **given):
        pass


def _may(method):
    what, how = os.environ["FAKE_WANDB"].split()
    if what == method and how == "hangs":
        time.sleep(100_000)
    if what == method and how == "raises":
        raise RuntimeError(f"no {method}\\ntoday")
    if what == method and how == "refuses":
        raise Error(f"no {method}")
    if what == method and how == "exits":
        raise SystemExit(7)


class Run:
    starting_step = 0
    summary = {}

    def log(self, row, step):
        _may("log")

    def finish(self):
        _may("finish")


def init(**given):
    _may("init")
    return Run()
"""
FAULTS = [
    *("init hangs", "log hangs", "finish hangs", "init refuses", "init raises", "log raises"),
    *("finish raises", "init exits", "log exits"),
]


def jobs(drawn: random.Random, number: int, folder: Path) -> list[Job]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "wandb.py").write_text(FAKE, "utf-8")
    faults = drawn.sample(FAULTS, min(5 * number, len(FAULTS)))
    expected, seconds = _undisturbed(folder)
    return [partial(_trial, fault, expected, 2 * seconds + SECONDS, folder) for fault in faults]


def _undisturbed(folder: Path) -> tuple[Path, float]:
    """Returns the run folder of a run without W&B, and its seconds."""
    began, (started, outputs) = time.monotonic(), _start(folder, "no fault", "logger=none")
    started.ended()
    return run_folder(outputs), time.monotonic() - began


def _trial(fault: str, expected: Path, limit: float, folder: Path) -> Iterator[Trial]:
    started, outputs = _start(folder, fault, "logger=wandb")
    ended = started.ended(limit)
    lines = ended.err.splitlines()
    wrong = ended.fault or (ended.code and ended.err[-300:])
    if not wrong and (len(lines) != 1 or not lines[0].startswith("warning: logger: ")):
        wrong = f"expected one warning, got: {ended.err[-300:]}"
    yield f"W&B: {fault}", wrong or difference(expected, run_folder(outputs))


def _start(folder: Path, fault: str, logger: str) -> tuple[Started, Path]:
    """Starts a run whose W&B has a fault; also returns its output folder."""
    outputs = folder / fault.replace(" ", "-")
    path = os.pathsep.join([str(folder), environment()["PYTHONPATH"]])
    words = [*WORDS, logger, f"paths.outputs={outputs}"]
    return Started(words, {"PYTHONPATH": path, "FAKE_WANDB": fault}), outputs
