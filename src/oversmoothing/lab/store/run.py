"""The folder of a run: its lock, and the log and checkpoint of every group of seeds.

    outputs/<run>/config.yaml           the composed config
                  result.json           numbers of all seeds that have finished
                  weights-seed0.pt, …   what the task leaves of every seed
                  error.txt             traceback of a run that failed
                  s0-4/metrics.jsonl    log of the seeds 0 to 4, which are trained together
                  s0-4/checkpoint.pt    their state, while they are trained

Groups of seeds share no file, so they can be trained in any order. Every file that is read again is
written under a temporary name and then renamed, so it is complete after a crash or a kill.
"""

import contextlib
import hashlib
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

from oversmoothing import distributed
from oversmoothing.errors import InputError, reason_of, shortened
from oversmoothing.lab.store.files import OUTPUTS, read_or_set_aside, write_atomically, writing
from oversmoothing.lab.store.weights import load_tensors, save_tensors, weights_path

LOG, CHECKPOINT = "metrics.jsonl", "checkpoint.pt"
LONGEST = 100  # characters of the name of a group's folder
ROUND = 10.0  # seconds between two attempts to lock
SHOWN = 8  # most numbers of a line of progress
PAUSE = 1.0  # least seconds between two lines of progress without a terminal
SILENCE = 10.0  # most seconds without one, while there is progress
BAR = "{desc} {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"  # leaves room for the numbers


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
    """Takes the lock, or returns a line that says that another process has it."""
    with writing(folder, OUTPUTS):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            return f"{folder.name} is being run by another process"
    return None


class Recorder:
    """Writes what a task logs and saves for a group of seeds; under torchrun only process 0 does.

    Args:
        folder: of the run.
        seeds: of the networks in training. Every log line contains them.
        checkpoint_seconds: minimum time between two checkpoints.
        sink: also receives every log line (W&B).
        diagnose_every: epochs or steps between two measurements of the layers; 0: none.
        data: checksum of the data, which checkpoints keep; None: unknown.

    Attributes:
        log_file: ``metrics.jsonl`` of these seeds.
        checkpoint: ``checkpoint.pt`` of these seeds.
    """

    def __init__(
        self,
        folder: Path,
        seeds: list[int],
        checkpoint_seconds: float = 30.0,
        sink: Callable[[dict[str, Any]], None] | None = None,
        diagnose_every: int = 0,
        data: str | None = None,
    ) -> None:
        self.diagnose_every, self.data = diagnose_every, data
        self.folder, self.seeds = Path(folder), list(seeds)
        self.log_file = self.folder / group_name(self.seeds) / LOG
        self.checkpoint = self.log_file.with_name(CHECKPOINT)
        self._interval, self._last_checkpoint = checkpoint_seconds, time.monotonic()
        self._sink, self._writes = sink, distributed.rank() == 0
        self._bar: tqdm | Lines | None = None
        self._told = 0.0  # when the last line of progress was printed
        self._name = self.folder.name  # of the next one; after the first the id is enough

    def log(self, **metrics: Any) -> None:
        """Appends one line to ``metrics.jsonl``, sends it to the sink and shows its numbers."""
        if not self._writes:
            return
        line = {"seeds": self.seeds, **metrics}
        with writing(self.log_file, OUTPUTS):
            self.log_file.parent.mkdir(parents=True, exist_ok=True)
            with open(self.log_file, "ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
        if self._sink:
            self._sink(line)
        self._show(line)

    def _show(self, line: dict[str, Any]) -> None:
        """Shows a log line beside the progress bar, or without a terminal as a line of stderr."""
        if self._bar is None:
            return
        *place, numbers = progress_words(line, self._bar.total)
        if self._bar.disable:
            self._tell(": ".join([*place, numbers]), PAUSE)
        else:
            self._bar.set_postfix_str(numbers)

    def _tell(self, words: str, pause: float) -> None:
        """Prints a line of progress if the last one is ``pause`` seconds ago."""
        now = time.monotonic()
        if self._writes and now - self._told >= pause:
            self._told = now
            run, self._name = self._name, self.folder.name.split("-")[-1]
            print(f"{run}/{group_name(self.seeds)}: {words}", file=sys.stderr, flush=True)

    def diagnosis_due(self, step: int, last: bool = False) -> bool:
        """Whether this process measures the layers after a number of epochs or steps."""
        due = self.diagnose_every and (last or step % self.diagnose_every == 0)
        return bool(due) and self._writes

    def checkpoint_due(self) -> bool:
        """Whether ``checkpoint_seconds`` have passed since the last checkpoint."""
        return time.monotonic() - self._last_checkpoint >= self._interval

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replaces the checkpoint.

        Args:
            state: tensors, numbers, strings, lists and dicts only.
        """
        if self._writes:
            size = self.log_file.stat().st_size if self.log_file.exists() else 0
            content = {"state": state, "logged_bytes": size, "data": self.data}
            save_tensors(self.checkpoint, content)
        self._last_checkpoint = time.monotonic()

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Loads the last state, tensors on the CPU; None if there is none, or a damaged one.

        The lines that were logged after it are removed, since they will come again.

        Raises:
            InputError: it was made on other data.
        """
        return distributed.from_first(self._load() if self._writes else None)

    def _load(self) -> dict[str, Any] | None:
        found = read_or_set_aside(self.checkpoint, _parse)
        before = found["data"] if found else None
        if before and self.data and before != self.data:
            raise InputError(
                f"{self.checkpoint}: made on other data (checksum {before}, now {self.data}); "
                "restore the data, or remove the file, and the same command starts from the "
                "beginning"
            )
        self._cut_log(found["logged_bytes"] if found else 0)
        return found["state"] if found else None

    def _cut_log(self, size: int) -> None:
        if self.log_file.exists() and self.log_file.stat().st_size > size:
            with writing(self.log_file, OUTPUTS):
                os.truncate(self.log_file, size)

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Context in which a state is loaded into a network and its optimizer.

        Raises:
            InputError: the state belongs to another network.
        """
        try:
            yield
        except Exception as error:  # torch may raise any error for a foreign state
            reason = shortened(reason_of(error), 300)
            raise InputError(
                f"{self.checkpoint}: does not fit this run ({type(error).__name__}: {reason}); "
                "remove it, and the same command starts from the beginning"
            ) from error

    def start_over(self, reason: str) -> None:
        """Empties the log, since a loaded checkpoint cannot be used.

        Args:
            reason: continues the sentence "the checkpoint is not used, since".
        """
        if self._writes:
            warnings.warn(
                f"{self.folder}: the checkpoint is not used, since {reason}; the training starts "
                "from the beginning",
                stacklevel=2,
            )
            self._cut_log(0)

    def end(self) -> None:
        """Removes the checkpoint of seeds that have their results."""
        if self._writes:
            with writing(self.checkpoint, OUTPUTS):
                self.checkpoint.unlink(missing_ok=True)

    def save_weights(self, weights: dict[str, Any]) -> Path:
        """Saves the state of a trained network as ``weights-seed<seeds>.pt``."""
        path = weights_path(self.folder, *self.seeds)
        if self._writes:
            save_tensors(path, weights)
        return path

    def picture(self, name: str, path: Path) -> None:
        """Sends a picture of the run folder to the sink."""
        if self._sink and hasattr(self._sink, "picture"):
            self._sink.picture(name, path, self.seeds)

    def save_arrays(self, name: str, **arrays: Any) -> Path:
        """Writes numpy arrays to ``<name>.npz``."""
        path = self.folder / f"{name}.npz"
        if self._writes:
            write_atomically(path, lambda file: np.savez_compressed(file, **arrays), OUTPUTS)
        return path

    def progress(self, total: int, unit: str) -> "tqdm | Lines":
        """Creates a progress bar; without a terminal, lines are printed instead.

        These are the log lines, and how far it is after ten seconds without one. The first line has
        the name of the run, the others its id: several processes may print lines in turn.

        Args:
            unit: what is counted, such as ``epoch``.
        """
        silent = None if self._writes else True
        desc = f"{self.folder.name}, {unit}"
        how = {"leave": False, "dynamic_ncols": True, "bar_format": BAR}
        bar = tqdm(total=total, desc=desc, disable=silent, **how)
        self._told = max(self._told, time.monotonic() - PAUSE)
        self._bar = Lines(total, unit, self._tell) if bar.disable else bar
        return self._bar


class Lines:
    """Tells how far a loop is, where there is no terminal for a progress bar.

    Args:
        tell: prints words if the last line is some seconds ago.
    """

    disable = True

    def __init__(self, total: int, unit: str, tell: Callable[[str, float], None]) -> None:
        self.total, self.unit, self.tell, self.n = total, unit, tell, 0

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        """Prints nothing."""

    def update(self, n: int = 1) -> None:
        self.n += n
        self.tell(f"{self.unit} {self.n} of {self.total}", SILENCE)


def progress_words(line: dict[str, Any], total: int) -> tuple[str, str]:
    """A log line -> ``epoch 20 of 200`` and its numbers, each the mean over the seeds."""
    axis = next((key for key in ("epoch", "step", "layer") if key in line), "")
    place = f"{axis} {line[axis]} of {total}" if axis else ""
    means = {
        key: statistics.fmean(value) if isinstance(value, list) else value
        for key, value in line.items()
        if key not in ("seeds", axis) and _is_number_by_seed(value, len(line["seeds"]))
    }
    words = [f"{key} {value:.4g}" for key, value in [*means.items()][:SHOWN]]
    return place, ", ".join(words + _layer_words(line.get("layers") or []))


def _layer_words(layers: list[dict[str, list[float]]]) -> list[str]:
    """Returns ``cosine 0.41 -> 0.98``, after the first and the last layer, means over the seeds."""
    ends = {
        name: [statistics.fmean(own[name][layer] for own in layers) for layer in (0, -1)]
        for name in ("cosine", "effective_rank")
        if layers and name in layers[0]
    }
    return [f"{name} {first:.3g} -> {last:.3g}" for name, (first, last) in ends.items()]


def _is_number_by_seed(value: Any, seeds: int) -> bool:
    values = value if isinstance(value, list) and len(value) == seeds else [value]
    return all(isinstance(one, (int, float)) for one in values)


def group_name(seeds: list[int]) -> str:
    """Returns the name of the folder of some seeds: ``s0-4``, ``s1_3``; a hash of a long list."""
    spans: list[list[int]] = []
    for seed in seeds:
        if spans and seed == spans[-1][-1] + 1:
            spans[-1].append(seed)
        else:
            spans.append([seed])
    name = "s" + "_".join("-".join(map(str, dict.fromkeys((s[0], s[-1])))) for s in spans)
    hashed = hashlib.sha256(name.encode()).hexdigest()[:10]
    return name if len(name) <= LONGEST else f"s-{hashed}"


def _parse(path: Path) -> dict[str, Any]:
    found = load_tensors(path)
    if not isinstance(found, dict) or not {"state", "logged_bytes", "data"} <= found.keys():
        raise ValueError("it is not a checkpoint of a run")
    return found
