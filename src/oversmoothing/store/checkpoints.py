"""The last two checkpoints of a run. Loading one never runs code from the file."""

import io
import os
from pathlib import Path
from typing import Any

import torch

from oversmoothing.store import tensors
from oversmoothing.store.files import read_or_set_aside, write_atomically

NAMES = ("checkpoint.pt", "checkpoint-before.pt")
PASSING = (".checkpoint-fresh.pt", ".checkpoint-aside.pt")


def save(folder: Path, payload: dict[str, Any]) -> None:
    """Writes the newest checkpoint; the previous newest is kept. There is always a whole one."""
    newest, before = (folder / name for name in NAMES)
    fresh, aside = (folder / name for name in PASSING)
    write(fresh, payload)  # on the disk before the others are renamed
    if newest.exists():
        aside.unlink(missing_ok=True)
        try:
            os.link(newest, aside)
        except OSError:  # a file system without hard links
            newest.replace(before)
        else:
            aside.replace(before)
    fresh.replace(newest)


def load(folder: Path, seeds: list[int]) -> dict[str, Any] | None:
    """Loads the newest checkpoint of ``seeds``; a damaged one is set aside."""
    for name in NAMES:
        payload = read_or_set_aside(folder / name, _parse)
        if payload is not None and payload["seeds"] == seeds:
            return payload
    return None


def remove(folder: Path) -> None:
    """Deletes all checkpoints."""
    for name in NAMES + PASSING:
        (folder / name).unlink(missing_ok=True)


def write(path: Path, content: dict[str, Any]) -> None:
    """Writes tensors, numbers, strings, lists and dicts to a file atomically."""
    buffer = io.BytesIO()  # torch.save to a file does not report a full disk
    torch.save(content, buffer)
    write_atomically(path, lambda file: file.write(buffer.getbuffer()))


def _parse(path: Path) -> dict[str, Any]:
    payload = tensors.load(path)
    if not isinstance(payload, dict) or payload.keys() != {"state", "seeds", "logged_bytes"}:
        raise ValueError("it is not a checkpoint of a run")
    return payload
