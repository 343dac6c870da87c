"""Reads mutated files by `scripts/fuzz.py`."""

import importlib
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torture_areas import Job, Trial

FILES = 100  # of each kind


def jobs(drawn: random.Random, number: int, folder: Path) -> list[Job]:
    fuzz = importlib.import_module("fuzz")
    seed = drawn.randrange(10**6)
    return [partial(_kind, fuzz, kind, FILES * number, seed) for kind in fuzz.KINDS]


def _kind(fuzz: object, kind: str, number: int, seed: int) -> Iterator[Trial]:
    """Yields a trial for each file; `python scripts/fuzz.py` shows details of failures."""
    for outcome, count in fuzz.fuzz(kind, number, seed).items():
        failure = "" if outcome in fuzz.GOOD else f"{outcome} with seed {seed}"
        yield from ((f"{kind} file", failure) for _ in range(count))
