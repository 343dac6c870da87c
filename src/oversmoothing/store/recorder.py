"""The result store: one folder a run, safe against crashes, kills and company.

A folder holds ``config.yaml``, ``metrics.jsonl`` (appended to), the last two checkpoints while it
trains, ``result.json`` once it has results, and ``error.txt`` after a crash. What is read again is
written beside its place and renamed into it. A run's process holds an exclusive lock on ``.lock``,
which the kernel drops when the process dies, so no claim can outlive its owner.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from oversmoothing import distributed
from oversmoothing.store import checkpoints
from oversmoothing.store.files import read_or_set_aside, write_atomically, write_text, writing


class Recorder:
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
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.seeds = list(seeds)
        self._logged_bytes = logged_bytes
        self._interval = checkpoint_seconds
        self._last_checkpoint = time.monotonic()
        self._sink = sink
        self._metrics = self.folder / "metrics.jsonl"
        self._writes = distributed.rank() == 0

    def log(self, **metrics: Any) -> None:
        """Appends one line to ``metrics.jsonl`` and tells the sink; process 0 does."""
        if not self._writes:
            return
        line = {"seeds": self.seeds, **metrics}
        with writing(self._metrics), open(self._metrics, "a") as file:
            file.write(json.dumps(line) + "\n")
        if self._sink:
            self._sink(line)

    def checkpoint_due(self) -> bool:
        """Whether the last checkpoint is long enough ago."""
        return time.monotonic() - self._last_checkpoint >= self._interval

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Adds a checkpoint; the one before it stays, too.

        Args:
            state: tensors, numbers, strings, lists and dicts only.
        """
        if self._writes:
            logged = self._metrics.stat().st_size if self._metrics.exists() else 0
            payload = {"state": state, "seeds": self.seeds, "logged_bytes": logged}
            checkpoints.save(self.folder, payload)
        self._last_checkpoint = time.monotonic()

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last state, tensors on the CPU, and the log cut back to it; None to start afresh.

        A file that cannot be read is set aside with a warning, and the one before it serves.
        """
        return distributed.from_first(self._load() if self._writes else None)

    def _load(self) -> dict[str, Any] | None:
        payload = checkpoints.load(self.folder, self.seeds)
        if self._metrics.exists():
            logged = payload["logged_bytes"] if payload else self._logged_bytes
            with writing(self._metrics):
                os.truncate(self._metrics, min(logged, self._metrics.stat().st_size))
        return payload["state"] if payload else None

    def save_weights(self, weights: dict[str, Any]) -> Path:
        """Keeps a trained network's state as ``weights-seed<seeds>.pt``."""
        path = weights_path(self.folder, *self.seeds)
        if self._writes:
            checkpoints.write(path, weights)
        return path

    def picture(self, name: str, path: Path) -> None:
        """Tells the sink of a picture that lies in the run's folder."""
        if self._sink and hasattr(self._sink, "picture"):
            self._sink.picture(name, path)

    def save_arrays(self, name: str, **arrays: Any) -> Path:
        """Writes numpy arrays to ``<name>.npz``."""
        path = self.folder / f"{name}.npz"
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))
        return path

    def progress(self, total: int, desc: str) -> tqdm:
        """A progress bar with ETA; silent where stderr is no terminal."""
        silent = None if self._writes else True
        return tqdm(total=total, desc=desc, disable=silent, leave=False, dynamic_ncols=True)


def read_result(folder: Path) -> dict[str, Any] | None:
    """``result.json`` of a run folder; None where there is none, or none that can be read."""
    return read_or_set_aside(Path(folder) / "result.json", _parse_result)


def _parse_result(path: Path) -> dict[str, Any]:
    result = json.loads(path.read_text())
    if not isinstance(result, dict) or not isinstance(result.get("seeds"), dict):
        raise ValueError("it holds no seeds")
    return result


def weights_path(folder: Path, *seeds: int) -> Path:
    """Where a run keeps the trained weights of a seed."""
    return Path(folder) / f"weights-seed{'-'.join(map(str, seeds))}.pt"


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes ``result.json``."""
    text = json.dumps(result, indent=1) + "\n"
    write_text(Path(folder) / "result.json", text)
