"""Locks of run folders: one process, or one group of processes, works on a run at a time."""

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from oversmoothing import distributed
from oversmoothing.lab.store.files import OUTPUTS, remove_temporaries, writing

ROUND = 10.0  # seconds


class Busy(Exception):
    """Another process is working on this run."""


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Context that locks a run for this process, or for a group of processes by process 0.

    The lock ends with the context, or with the process if it is killed.

    Args:
        folder: of the run; it is created if necessary.
        wait: wait until the run is free.

    Raises:
        Busy: another process holds the run and ``wait`` is false.
        InputError: the folder cannot be written.
    """
    lock = FileLock(folder / ".lock", timeout=ROUND if wait else 0)
    while said := distributed.from_first(
        _acquire(lock, folder) if distributed.rank() == 0 else None
    ):
        if not wait:  # when waiting, the processes exchange in every round and so avoid a timeout
            raise Busy(said)
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, folder: Path) -> str | None:
    """Takes the lock, or returns a line that names its owner.

    The owner's name is in a separate file, since on Windows no other process can read a locked one.
    """
    owner = folder / ".owner"
    with writing(folder, OUTPUTS):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            known = owner.read_text("utf-8").strip() if owner.exists() else ""
            return f"{folder.name} is being run by {known or 'another process'}"
        owner.write_text(f"process {os.getpid()} on {platform.node()}\n", "utf-8")
        remove_temporaries(folder)
    return None
