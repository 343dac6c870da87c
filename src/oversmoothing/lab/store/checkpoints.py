"""Saves and loads the last two checkpoints of a run; loading never runs code from the file."""

import contextlib
import io
import os
import warnings
from collections.abc import Collection, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

import torch

from oversmoothing.errors import InputError, reason_of, shortened
from oversmoothing.lab.store import tensors
from oversmoothing.lab.store.files import OUTPUTS, read_or_set_aside, write_atomically, writing

NAMES = ("checkpoint.pt", "checkpoint-before.pt")
PASSING = (".checkpoint-fresh.pt", ".checkpoint-aside.pt")
LONGEST = 100  # characters of seeds in the name of a file


def save(folder: Path, payload: dict[str, Any]) -> None:
    """Writes a checkpoint and keeps the one before; at any time at least one is complete."""
    newest, before = (folder / name for name in NAMES)
    fresh, aside = (folder / name for name in PASSING)
    write(fresh, payload)  # it must be on the disk before the others are renamed
    with writing(newest, OUTPUTS):
        try:
            aside.unlink(missing_ok=True)
            os.link(newest, aside)
            aside.replace(before)
        except FileNotFoundError:  # the first checkpoint, or somebody has deleted the last one
            pass
        except OSError:  # a file system without hard links
            newest.replace(before)
        fresh.replace(newest)


def switch_seeds(folder: Path, seeds: list[int], log: Path, stored: int) -> None:
    """Sets a checkpoint of other seeds aside, and restores the one of these seeds.

    A checkpoint that is set aside includes its lines of the log. So the seeds of a run can be
    trained in any order.

    Args:
        folder: of the run.
        seeds: the seeds to train now.
        log: ``metrics.jsonl``.
        stored: bytes of the log that belong to stored results.
    """
    found = (read_or_set_aside(folder / name, _parse) for name in NAMES)
    newest = next((own for own in found if own and holds(log, own["logged_bytes"])), None)
    if newest and newest["seeds"] != seeds:
        lines = log.read_bytes()[stored : newest["logged_bytes"]] if log.exists() else b""
        write(_waiting(folder, newest["seeds"]), newest | {"log": lines.decode()})
        remove(folder)
    path = _waiting(folder, seeds)
    going_on = newest is not None and newest["seeds"] == seeds
    if going_on or (own := read_or_set_aside(path, _parse_waiting)) is None:
        return
    known = log.read_bytes()[:stored] if log.exists() else b""
    whole = known + own.pop("log").encode()
    write_atomically(log, lambda file: file.write(whole), OUTPUTS)
    write(folder / NAMES[0], own | {"logged_bytes": len(whole)})
    path.unlink()


def _waiting(folder: Path, seeds: list[int]) -> Path:
    """Returns the file for a checkpoint that is set aside; many seeds are hashed."""
    name = "-".join(map(str, seeds))
    if len(name) > LONGEST:
        name = f"s-{sha1(name.encode()).hexdigest()}"
    return folder / f"checkpoint-seed{name}.pt"


def load(folder: Path, seeds: list[int], log: Path) -> dict[str, Any] | None:
    """Loads the newest checkpoint of ``seeds`` whose part of the log exists.

    A damaged checkpoint is set aside. A checkpoint that refers to missing lines of the log is
    skipped with a warning.
    """
    for name in NAMES:
        payload = read_or_set_aside(folder / name, _parse)
        if payload is None or payload["seeds"] != seeds:
            continue
        if holds(log, payload["logged_bytes"]):
            return payload
        warnings.warn(
            f"{log} has lost lines that belong to {name}; the run goes back to an earlier state",
            stacklevel=2,
        )
    return None


@contextlib.contextmanager
def restoring(folder: Path, optimizer: torch.optim.Optimizer | None = None) -> Iterator[None]:
    """Context in which a state is loaded into a network and its optimizer.

    Raises:
        InputError: the state belongs to another network.
    """
    try:
        yield
        for parameter, own in optimizer.state.items() if optimizer else ():
            for name, value in own.items():  # torch would fail only in the next step
                if (
                    isinstance(value, torch.Tensor)
                    and value.dim()
                    and value.shape != parameter.shape
                ):
                    sizes = f"{tuple(value.shape)} for {tuple(parameter.shape)}"
                    raise ValueError(f"the optimizer's {name} is {sizes}")
    except Exception as error:  # torch may raise any error for a foreign state
        reason = shortened(reason_of(error), 300)
        path = next((folder / name for name in NAMES if (folder / name).exists()), folder)
        raise InputError(
            f"{path}: does not fit this run ({type(error).__name__}: {reason}); remove "
            f"{' and '.join(NAMES)} there, and the same command starts from the beginning"
        ) from error


def holds(log: Path, size: int) -> bool:
    """Whether the first ``size`` bytes of a log exist and end with a complete line."""
    if not size:
        return True
    if not log.exists() or log.stat().st_size < size:
        return False
    with open(log, "rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def remove(folder: Path) -> None:
    """Deletes all checkpoints. Raises InputError if that is not possible."""
    with writing(folder, OUTPUTS):
        for name in NAMES + PASSING:
            (folder / name).unlink(missing_ok=True)


def remove_of(folder: Path, finished: Collection[int]) -> None:
    """Deletes the checkpoints of finished seeds."""
    for path in folder.glob("checkpoint-seed*.pt"):
        payload = read_or_set_aside(path, _parse_waiting)
        if payload and set(payload["seeds"]) <= set(finished):
            path.unlink(missing_ok=True)
    if not any((folder / name).exists() for name in NAMES + PASSING):
        return
    found = [read_or_set_aside(folder / name, _parse) for name in NAMES]
    if all(set(payload["seeds"]) <= set(finished) for payload in found if payload):
        remove(folder)


def write(path: Path, content: dict[str, Any]) -> None:
    """Writes tensors, numbers, strings, lists and dicts to a file atomically."""
    buffer = io.BytesIO()  # torch.save to a file does not report a full disk
    torch.save(content, buffer)
    write_atomically(path, lambda file: file.write(buffer.getbuffer()), OUTPUTS)


def _parse(path: Path, *more: str) -> dict[str, Any]:
    payload = tensors.load(path)
    if not isinstance(payload, dict) or payload.keys() != {"state", "seeds", "logged_bytes", *more}:
        raise ValueError("it is not a checkpoint of a run")
    return payload


def _parse_waiting(path: Path) -> dict[str, Any]:
    return _parse(path, "log")
