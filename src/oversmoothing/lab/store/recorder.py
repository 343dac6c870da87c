"""Writes the files of a run: log, checkpoints, weights, arrays, pictures, results.

A run folder holds ``config.yaml``, ``metrics.jsonl``, the last two checkpoints during training,
``result.json`` once there are results, and ``error.txt`` after a crash. Every file that is read
again is written under a temporary name and then renamed, so it is complete after a crash or a kill.
"""

import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from oversmoothing import distributed
from oversmoothing.errors import InputError
from oversmoothing.lab.store import checkpoints
from oversmoothing.lab.store.files import (
    OUTPUTS,
    flush,
    read_or_set_aside,
    write_atomically,
    write_text,
    writing,
)


class Recorder:
    """Writes what a task logs and saves into a run folder.

    Args:
        folder: of the run; created if it does not exist.
        seeds: of the networks in training. Every log line contains them, and a checkpoint is loaded
            only for the same seeds.
        checkpoint_seconds: minimum time between two checkpoints.
        logged_bytes: size of the part of ``metrics.jsonl`` that belongs to stored results.
        sink: also receives every log line (W&B).
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
        self._size = 0  # of the log after its last line
        self._interval = checkpoint_seconds
        self._last_checkpoint = time.monotonic()
        self._sink = sink
        self._metrics = self.folder / "metrics.jsonl"
        self._writes = distributed.rank() == 0

    def log(self, **metrics: Any) -> None:
        """Appends one line to ``metrics.jsonl`` and sends it to the sink; only process 0 does."""
        if not self._writes:
            return
        line = {"seeds": self.seeds, **metrics}
        with writing(self._metrics, OUTPUTS), open(self._metrics, "ab") as file:
            self._tell_of_loss(file.tell())
            file.write(json.dumps(line).encode() + b"\n")
            self._size = file.tell()
        if self._sink:
            self._sink(line)

    def logged(self) -> int:
        """Flushes the log to the disk, and returns its size in bytes."""
        flush(self._metrics)
        size = self._metrics.stat().st_size if self._metrics.exists() else 0
        self._tell_of_loss(size)
        return size

    def _tell_of_loss(self, size: int) -> None:
        if size < self._size:
            warnings.warn(
                f"{self._metrics} has lost lines during the run; somebody deleted or cut it; the "
                "results are complete",
                stacklevel=3,
            )
        self._size = min(self._size, size)

    def checkpoint_due(self) -> bool:
        """Whether ``checkpoint_seconds`` have passed since the last checkpoint."""
        return time.monotonic() - self._last_checkpoint >= self._interval

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Saves a checkpoint and keeps the one before it.

        Args:
            state: tensors, numbers, strings, lists and dicts only.
        """
        if self._writes:
            payload = {"state": state, "seeds": self.seeds, "logged_bytes": self.logged()}
            checkpoints.save(self.folder, payload)
        self._last_checkpoint = time.monotonic()

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Loads the last state, tensors on the CPU; None if there is no checkpoint.

        The log is truncated to its size at the checkpoint. A checkpoint that is damaged or refers
        to missing lines of the log is skipped with a warning, and the one before it is loaded.
        """
        return distributed.from_first(self._load() if self._writes else None)

    def _load(self) -> dict[str, Any] | None:
        checkpoints.switch_seeds(self.folder, self.seeds, self._metrics, self._logged_bytes)
        payload = checkpoints.load(self.folder, self.seeds, self._metrics)
        logged = payload["logged_bytes"] if payload else self._logged_bytes
        if not checkpoints.holds(self._metrics, logged):
            self._keep_other_seeds()
        elif self._metrics.exists():
            with writing(self._metrics, OUTPUTS):
                os.truncate(self._metrics, logged)
        return payload["state"] if payload else None

    def start_over(self, reason: str) -> None:
        """Truncates the log to the stored results, since a loaded checkpoint cannot be used.

        Args:
            reason: continues the sentence "the checkpoint is not used, since".
        """
        if not self._writes:
            return
        warnings.warn(
            f"{self.folder}: the checkpoint is not used, since {reason}; the training starts from "
            "the beginning",
            stacklevel=2,
        )
        if self._metrics.exists():
            with writing(self._metrics, OUTPUTS):
                os.truncate(self._metrics, self._logged_bytes)

    def _keep_other_seeds(self) -> None:
        """Rewrites a log that has lost lines of stored results, without lines of these seeds."""
        warnings.warn(
            f"{self._metrics} has lost lines of finished seeds; their results are complete",
            stacklevel=2,
        )
        known = self._metrics.read_bytes() if self._metrics.exists() else b""
        kept = [line for line in known.splitlines(keepends=True) if self._of_others(line)]
        write_atomically(self._metrics, lambda file: file.write(b"".join(kept)), OUTPUTS)

    def _of_others(self, line: bytes) -> bool:
        try:
            return line.endswith(b"\n") and json.loads(line)["seeds"] != self.seeds
        except (ValueError, LookupError, TypeError):  # an incomplete line
            return False

    def save_weights(self, weights: dict[str, Any]) -> Path:
        """Saves the state of a trained network as ``weights-seed<seeds>.pt``."""
        path = weights_path(self.folder, *self.seeds)
        if self._writes:
            checkpoints.write(path, weights)
        return path

    def picture(self, name: str, path: Path) -> None:
        """Sends a picture of the run folder to the sink."""
        if self._sink and hasattr(self._sink, "picture"):
            self._sink.picture(name, path)

    def save_arrays(self, name: str, **arrays: Any) -> Path:
        """Writes numpy arrays to ``<name>.npz``."""
        path = self.folder / f"{name}.npz"
        if self._writes:
            write_atomically(path, lambda file: np.savez_compressed(file, **arrays), OUTPUTS)
        return path

    def progress(self, total: int, desc: str) -> tqdm:
        """Creates a progress bar; it is silent where stderr is not a terminal."""
        silent = None if self._writes else True
        return tqdm(total=total, desc=desc, disable=silent, leave=False, dynamic_ncols=True)


def read_result(folder: Path) -> dict[str, Any] | None:
    """Reads ``result.json`` of a run folder, or ``metrics.json`` of an exported run.

    Returns None if there is neither, or if it is damaged.

    Raises:
        InputError: it does not hold results of seeds.
    """
    paths = [Path(folder) / name for name in ("result.json", "metrics.json")]
    return read_or_set_aside(next(filter(Path.exists, paths), paths[0]), _parse_result)


def _parse_result(path: Path) -> dict[str, Any]:
    result = json.loads(path.read_text("utf-8"))
    if not isinstance(result, dict) or not isinstance(result.get("seeds"), dict):
        raise ValueError("it has no seeds")
    for seed, own in result["seeds"].items():
        if not (seed.isascii() and seed.isdigit() and isinstance(own, dict)):
            raise InputError(
                f"{path}: seeds.{seed}: expected the results of a seed; restore the file, or "
                "remove it and run the command again"
            )
    return result


def weights_path(folder: Path, *seeds: int) -> Path:
    """Returns the path of the trained weights of a seed, or of seeds trained together."""
    return Path(folder) / f"weights-seed{'-'.join(map(str, seeds))}.pt"


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes ``result.json``."""
    text = json.dumps(result, indent=1) + "\n"
    write_text(Path(folder) / "result.json", text, OUTPUTS)
