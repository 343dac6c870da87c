"""Compares two run folders bit by bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

PASSING = {".lock", ".owner"}  # of the claim


def run_folder(outputs: Path) -> Path:
    """Returns the only run folder of an output folder."""
    [folder] = [path for path in outputs.iterdir() if (path / "config.yaml").exists()]
    return folder


def difference(expected: Path, got: Path) -> str:
    """Returns a difference in result, log, weights, arrays or file names; empty without any."""
    if not (got / "result.json").exists():
        return "no result"
    if _result(expected) != _result(got):
        return "another result"
    if _log(expected) != _log(got):
        return f"another log: {len(_log(got))} of {len(_log(expected))} lines"
    names = [{path.name for path in folder.iterdir()} - PASSING for folder in (expected, got)]
    if names[0] != names[1]:
        return f"other files: {sorted(names[0] ^ names[1])}"
    for name in sorted(names[0]):
        if name.endswith((".pt", ".npz")) and not _same(expected / name, got / name):
            return f"another {name}"
    return ""


def _result(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text("utf-8"))["seeds"]


def _log(folder: Path) -> list[dict[str, Any]]:
    """Returns the lines of the log without speeds."""
    path = folder / "metrics.jsonl"
    text = path.read_text("utf-8") if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        line.pop("examples_per_second", None)
    return lines


def _same(first: Path, second: Path) -> bool:
    if first.suffix == ".npz":
        a, b = np.load(first), np.load(second)
        return a.files == b.files and all(a[k].tobytes() == b[k].tobytes() for k in a.files)
    a, b = (torch.load(path, weights_only=True) for path in (first, second))
    return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)


def _equal(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
