"""Simulates a full disk: the command must print one line, and continue when run again."""

import math
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torture_areas import Job, Trial
from torture_areas.commands import words
from torture_areas.compare import difference, run_folder
from torture_areas.kills import Undisturbed
from torture_areas.processes import Started, train

TASKS = ("nodes", "classification", "rank", "wsss")


def jobs(drawn: random.Random, number: int, folder: Path) -> list[Job]:
    undisturbed = Undisturbed(folder)
    tasks = TASKS * number
    return [partial(_trial, undisturbed, task, drawn.random(), folder) for task in tasks]


def _trial(undisturbed: Undisturbed, task: str, seed: float, folder: Path) -> Iterator[Trial]:
    expected, _ = undisturbed(task)
    outputs = folder / task / f"full-{seed}"
    largest = max(path.stat().st_size for path in expected.iterdir())
    size = int(math.exp(random.Random(seed).uniform(math.log(200), math.log(4 * largest))))
    name = f"{task}: no file above {size} bytes"
    command = words(task, outputs)
    if task in ("classification", "wsss"):  # the limit also applies to shared memory
        command.append("trainer.workers=0")
    full = Started(command, file_size=size).ended()
    lines = [line for line in full.err.splitlines() if "cannot be written" in line]
    if full.fault or (full.code and not lines):
        yield name, full.fault or f"another error: {full.err[-300:]}"
        return
    ended = train(words(task, outputs))
    yield name, ended.fault or difference(expected, run_folder(outputs))
