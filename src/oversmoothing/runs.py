"""The result store: one folder a run, safe against crashes, kills and company.

A folder holds ``config.yaml``, ``metrics.jsonl`` (appended to), ``checkpoint.pt`` while it trains,
``result.json`` once it has results, and ``error.txt`` after a crash. What is read again is written
beside its place and renamed into it. A run's process holds an exclusive lock on ``.lock``,
which the kernel drops when the process dies, so no claim can outlive its owner.
"""

import contextlib
import fcntl
import io
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from oversmoothing.errors import InputError
from oversmoothing.files import write_atomically, writing


class Busy(Exception):
    """Another process works on this run now."""


class Run:
    """What a task is given to leave its traces with.

    Args:
        folder: of the run; made when missing.
        seeds: that are trained now; part of every log line, and a checkpoint serves only them.
        checkpoint_seconds: least time between two checkpoints.
        logged_bytes: how much of ``metrics.jsonl`` belongs to results already stored.
        sink: also told of every log line (W&B).
    """

    def __init__(
        self,
        folder: Path,
        seeds: list[int],
        checkpoint_seconds: float = 30.0,
        logged_bytes: int = 0,
        sink: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.dir = Path(folder)
        self.dir.mkdir(parents=True, exist_ok=True)
        self._seeds = list(seeds)
        self._logged_bytes = logged_bytes
        self._interval = checkpoint_seconds
        self._last_checkpoint = time.monotonic()
        self._sink = sink
        self._metrics = self.dir / "metrics.jsonl"

    def log(self, **metrics: Any) -> None:
        """Appends one line to ``metrics.jsonl`` and tells the sink."""
        line = {"seeds": self._seeds, **metrics}
        with writing(self._metrics), open(self._metrics, "a") as file:
            file.write(json.dumps(line) + "\n")
        if self._sink:
            self._sink(line)

    def checkpoint_due(self) -> bool:
        """Whether the last checkpoint is long enough ago."""
        return time.monotonic() - self._last_checkpoint >= self._interval

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replaces the checkpoint; tensors, numbers, strings, lists and dicts only."""
        logged = self._metrics.stat().st_size if self._metrics.exists() else 0
        payload = {"state": state, "seeds": self._seeds, "logged_bytes": logged}
        buffer = io.BytesIO()  # torch.save into a file says nothing of a full disk
        torch.save(payload, buffer)
        write_atomically(self.dir / "checkpoint.pt", lambda file: file.write(buffer.getbuffer()))
        self._last_checkpoint = time.monotonic()

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last state, tensors on the CPU, and the log cut back to it; None to start afresh.

        A file that cannot be read is set aside with a warning.
        """
        path = self.dir / "checkpoint.pt"
        payload = read_or_set_aside(path, _parse_checkpoint)
        usable = payload is not None and payload["seeds"] == self._seeds
        if self._metrics.exists():
            logged = payload["logged_bytes"] if usable else self._logged_bytes
            with writing(self._metrics):
                os.truncate(self._metrics, min(logged, self._metrics.stat().st_size))
        return payload["state"] if usable else None

    def save_arrays(self, name: str, **arrays: Any) -> Path:
        """Writes numpy arrays to ``<name>.npz``."""
        path = self.dir / f"{name}.npz"
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))
        return path

    def progress(self, total: int, desc: str) -> tqdm:
        """A progress bar with ETA; silent where stderr is no terminal."""
        return tqdm(total=total, desc=desc, disable=None, leave=False, dynamic_ncols=True)


def read_result(folder: Path) -> dict[str, Any] | None:
    """``result.json`` of a run folder; None where there is none, or none that can be read."""
    return read_or_set_aside(Path(folder) / "result.json", _parse_result)


def _parse_result(path: Path) -> dict[str, Any]:
    result = json.loads(path.read_text())
    if not isinstance(result, dict) or not isinstance(result.get("seeds"), dict):
        raise ValueError("it holds no seeds")
    return result


def _parse_checkpoint(path: Path) -> dict[str, Any]:
    payload = torch.load(path, "cpu", weights_only=True)
    if not isinstance(payload, dict) or payload.keys() != {"state", "seeds", "logged_bytes"}:
        raise ValueError("it is none of ours")
    return payload


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes ``result.json``."""
    text = json.dumps(result, indent=1) + "\n"
    write_atomically(Path(folder) / "result.json", lambda file: file.write(text.encode()))


def read_or_set_aside(path: Path, read: Callable[[Path], Any]) -> Any | None:
    """What ``read`` makes of a file; a corrupt one is renamed to ``*.corrupt`` with a warning."""
    if not path.exists():
        return None
    try:
        return read(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); mend that first") from error
    except Exception as error:  # whatever a damaged file makes the reader raise
        aside = path.with_name(path.name + ".corrupt")
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            path.replace(aside)
        reason = str(error).split("\n")[0][:80]
        warnings.warn(
            f"{path} cannot be read ({reason}); set aside as {aside.name}, redoing it", stacklevel=2
        )
        return None


@contextlib.contextmanager
def claimed(folder: Path, wait: bool = False) -> Iterator[None]:
    """Holds a run for this process.

    Raises:
        Busy: another process holds it, and ``wait`` is off.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / ".lock", "a+")  # noqa: SIM115 (closed below)
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "another process"
            raise Busy(f"{folder.name} is being run by {owner}") from None
        with writing(folder / ".lock"):
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {os.uname().nodename}\n")
            lock.flush()
        yield
