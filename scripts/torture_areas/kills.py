"""Kills every task at random moments, and then runs the same command again."""

import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from oversmoothing.lab.train import STOPPED
from torture_areas import Job, Trial
from torture_areas.commands import OF_TASK, words
from torture_areas.compare import difference, run_folder
from torture_areas.processes import Started, train

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Undisturbed:
    """Uninterrupted runs, one for each task, made at their first use."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._locks = {task: threading.Lock() for task in OF_TASK}
        self._known: dict[str, tuple[Path, float]] = {}

    def __call__(self, task: str) -> tuple[Path, float]:
        """Returns the run folder of a task, and the seconds of its command."""
        with self._locks[task]:
            if task not in self._known:
                began, outputs = time.monotonic(), self._folder / task / "undisturbed"
                ended = train(words(task, outputs))
                if ended.code:
                    raise RuntimeError(f"{task} does not run: {ended.err[-2000:]}")
                self._known[task] = run_folder(outputs), time.monotonic() - began
            return self._known[task]


def jobs(drawn: random.Random, number: int, folder: Path) -> list[Job]:
    undisturbed = Undisturbed(folder)
    seeds = [drawn.random() for _ in range(number * len(OF_TASK))]
    tasks = list(OF_TASK) * number
    return [partial(_chain, undisturbed, task, seed, folder) for task, seed in zip(tasks, seeds)]


def _chain(undisturbed: Undisturbed, task: str, seed: float, folder: Path) -> Iterator[Trial]:
    """Kills a command one to three times, then lets it finish."""
    drawn, (expected, seconds) = random.Random(seed), undisturbed(task)
    outputs, signals = (
        folder / task / f"killed-{seed}",
        drawn.choices(SIGNALS, k=drawn.randint(1, 3)),
    )
    name = f"{task}: {', '.join(number.name for number in signals)}"
    for number in signals:
        if fault := _killed(words(task, outputs), number, expected, seconds, drawn):
            yield name, fault
            return
    ended = train(words(task, outputs))
    yield name, ended.fault or difference(expected, run_folder(outputs))


def _killed(
    command: list[str], number: signal.Signals, expected: Path, seconds: float, drawn: random.Random
) -> str:
    """Kills a command at a random log line or moment; returns the failure or an empty string."""
    lines = _logged(expected.parent)
    line, limit = drawn.randint(0, lines), drawn.uniform(0.2, 1.2) * seconds
    limit = limit if line == 0 else 4 * seconds
    outputs = Path(next(w for w in command if w.startswith("paths.outputs=")).partition("=")[2])
    tells = line > _logged(outputs)  # else it may be killed before our code runs
    started, began = Started(command), time.monotonic()
    while started.running() and time.monotonic() - began < limit:
        if line and _logged(outputs) >= line:
            time.sleep(drawn.uniform(0, 0.05))
            break
        time.sleep(0.002)
    started.stop(number)
    ended = started.ended(30)
    if left := started.orphans():
        return f"{number.name} leaves processes: {left}"
    if ended.code is None:
        return f"{number.name} does not end it within 30 s"
    if tells and "Traceback" in ended.err:
        return f"{number.name} prints a traceback: {ended.err[-300:]}"
    silent = number == signal.SIGKILL or not tells or list(outputs.glob("*/result.json"))
    if not silent and (ended.code == 0 or STOPPED not in ended.err.splitlines()):
        return f"{number.name}: no line that says that it stopped: {ended.err[-300:]}"
    return ""


def _logged(outputs: Path) -> int:
    logs = list(outputs.glob("*/metrics.jsonl"))
    return logs[0].read_bytes().count(b"\n") if logs else 0
