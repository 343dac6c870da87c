"""A run belongs to one process, or to those that work together, at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from oversmoothing import distributed
from oversmoothing.store.files import writing


class Busy(Exception):
    """Another process works on this run now."""


@contextlib.contextmanager
def claimed(folder: Path, wait: bool = False) -> Iterator[None]:
    """Holds a run for this process, or for all that work together: process 0 holds it.

    Raises:
        Busy: another process holds it, and ``wait`` is off.
    """
    lock = said = None
    if distributed.rank() == 0:
        lock, said = _lock(folder, wait)
    if said := distributed.from_first(said):
        raise Busy(said)
    try:
        yield
    finally:
        if lock:
            lock.close()


def _lock(folder: Path, wait: bool) -> tuple[IO | None, str | None]:
    """An open file that holds the lock, or who else has it."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "a+")  # noqa: SIM115 (its owner closes it)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        with lock:
            lock.seek(0)
            owner = lock.read().strip() or "another process"
        return None, f"{folder.name} is being run by {owner}"
    with writing(folder / ".lock"):
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        lock.flush()
    return lock, None
