"""Kills one of two processes that train together, started by hand or by torchrun."""

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torture_areas import Job, Trial
from torture_areas.commands import words
from torture_areas.compare import difference, run_folder
from torture_areas.processes import Ended, Started

SECONDS = 60.0  # time limit for the other process to end
TASKS = ("classification", "minibatch")


def jobs(drawn: random.Random, number: int, folder: Path) -> list[Job]:
    pairs = [(task, rank) for task in TASKS for rank in (0, 1)]
    chosen = drawn.sample(pairs * number, 2 * number)
    by_hand = [partial(_trial, task, rank, drawn.random(), folder) for task, rank in chosen]
    chosen = drawn.sample(pairs * number, number)
    return by_hand + [partial(_torchrun, *pair, drawn.random(), folder) for pair in chosen]


def _trial(task: str, rank: int, seed: float, folder: Path) -> Iterator[Trial]:
    drawn, name = random.Random(seed), f"{task}: process {rank} of 2 is killed"
    own = folder / f"{task}-{rank}-{seed}"
    whole = _both(task, own / "undisturbed")
    if faults := [one.fault or (one.code and one.err) for one in whole if one.fault or one.code]:
        yield f"{task}: two processes", faults[0]
        return
    expected = run_folder(own / "undisturbed")
    lines = len((expected / "metrics.jsonl").read_text("utf-8").splitlines())
    yield name, _one_killed(task, own / "killed", rank, drawn.randint(1, lines - 1))
    ended = _both(task, own / "killed")
    fault = next((one.fault or one.err for one in ended if one.fault or one.code), "")
    yield f"{name}; again", fault or difference(expected, run_folder(own / "killed"))


def _torchrun(task: str, rank: int, seed: float, folder: Path) -> Iterator[Trial]:
    """Kills a process under torchrun, which ends the other one and prints the error."""
    name = f"{task}: process {rank} of 2 under torchrun is killed"
    own, line = folder / f"torchrun-{task}-{rank}-{seed}", random.Random(seed).randint(1, 3)
    whole = _under_torchrun(task, own / "undisturbed").ended()
    if whole.code:
        yield f"{task}: torchrun", whole.err[-300:]
        return
    started = _under_torchrun(task, own / "killed")
    while started.running() and _lines(own / "killed") < line:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, KeyError):  # it has ended
        os.kill(started.children()[str(rank)], signal.SIGKILL)
    ended = started.ended(SECONDS)
    left = started.orphans()
    fault = f"processes are left: {left}" if left else ""
    yield name, fault or ("" if ended.code == 1 else f"torchrun ends with {ended.code}")
    again = _under_torchrun(task, own / "killed").ended()
    fault = again.err[-300:] if again.code else ""
    folders = (run_folder(own / part) for part in ("undisturbed", "killed"))
    yield f"{name}; again", fault or difference(*folders)


def _under_torchrun(task: str, outputs: Path) -> Started:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    return Started(words(task, outputs), launcher=torchrun)


def _lines(outputs: Path) -> int:
    logs = list(outputs.glob("*/metrics.jsonl"))
    return logs[0].read_bytes().count(b"\n") if logs else 0


def _start(task: str, outputs: Path) -> list[Started]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [{"RANK": str(i), "LOCAL_RANK": str(i), **group} for i in range(2)]
    return [Started(words(task, outputs), env) for env in ranks]


def _both(task: str, outputs: Path) -> list[Ended]:
    return [one.ended() for one in _start(task, outputs)]


def _one_killed(task: str, outputs: Path, rank: int, line: int) -> str:
    both = _start(task, outputs)
    while all(one.running() for one in both):
        if _lines(outputs) >= line:
            break
        time.sleep(0.01)
    both[rank].stop(signal.SIGKILL)
    ended = both[1 - rank].ended(SECONDS)
    both[rank].ended()
    if left := [name for one in both for name in one.orphans()]:
        return f"processes are left: {left}"
    if ended.code is None:
        return f"the other one does not end within {SECONDS:.0f} s"
    lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    if ended.fault or ended.code == 0:
        return ended.fault or "the other one ends as if nothing had happened"
    return "" if lines else f"no line that says why: {ended.err[-300:]}"
