"""What a run has given, in plain data that can be compared.

A run is described by its id, the results of every seed, the last line of its log, and SHA-256 of
its log without times, of its arrays and of its weights. What is trained together is hashed one by
one and sorted, so that neither the order of parameters nor of their groups matters.
"""

import hashlib
import itertools
import json
import math
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import Optimizer

Golden = dict[str, Any]
OTHER = {"examples_per_second", "seconds", "env"}  # keys beside the numbers of a run
BITS = {"parameters", "logs", "weights", "arrays"}  # keys of hashes
RELATIVE, ABSOLUTE, POINTS = 1e-2, 1e-3, 2.0  # tolerance on another machine
PERCENT = re.compile("accuracy|iou|score|coverage")  # keys with a tolerance of POINTS


def parameters(optimizer: Optimizer) -> str:
    """Returns one hash of all parameters of an optimizer."""
    tensors = [p.detach() for group in optimizer.param_groups for p in group["params"]]
    return _sha(*sorted(_sha(t.contiguous().numpy()) for t in tensors))


def described(folder: Path) -> Golden:
    """Describes the run in a folder."""
    result = json.loads((folder / "result.json").read_text("utf-8"))
    texts = [log.read_text("utf-8") for log in sorted(folder.rglob("metrics.jsonl"))]
    logs: dict[str, list[Golden]] = {}
    for line in map(json.loads, "".join(texts).splitlines()):
        logs.setdefault("-".join(map(str, line["seeds"])), []).append(numbers(line))
    return {
        "id": result["id"],
        "seeds": result["seeds"],
        "last": {seeds: lines[-1] for seeds, lines in logs.items()},
        "logs": {seeds: _sha(json.dumps(lines)) for seeds, lines in logs.items()},
        "weights": sorted(_sha(*_state(file)) for file in folder.rglob("weights-*.pt")),
        "arrays": sorted(_sha(*_arrays(file)) for file in folder.rglob("*.npz")),
    }


def numbers(node: Any) -> Any:
    """Leaves times and machines out of log lines and results."""
    if isinstance(node, dict):
        return {key: numbers(value) for key, value in node.items() if key not in OTHER}
    return node


def _state(file: Path) -> Iterator[Any]:
    for key, value in sorted(torch.load(file, weights_only=True).items()):
        yield key
        yield value.contiguous().numpy() if isinstance(value, torch.Tensor) else repr(value)


def _arrays(file: Path) -> Iterator[Any]:
    with np.load(file) as arrays:
        for key in sorted(arrays):
            yield key
            yield arrays[key]


def _sha(*parts: Any) -> str:
    """Returns 16 digits of the SHA-256 of texts and arrays."""
    digest = hashlib.sha256()
    for part in parts:
        is_array = isinstance(part, np.ndarray)
        digest.update(repr((part.dtype, part.shape) if is_array else len(part)).encode())
        digest.update(part.tobytes() if is_array else part.encode())
    return digest.hexdigest()[:16]


def machine() -> dict[str, str]:
    """Returns what decides the bits of a run beside its code."""
    cpu = Path("/proc/cpuinfo")
    kinds = ("vendor_id", "cpu family", "model")
    lines = cpu.read_text("utf-8").splitlines() if cpu.exists() else []
    own = [line.split(":")[1].strip() for line in lines if line.split(":")[0].strip() in kinds]
    return {
        "torch": torch.__version__,
        "cpu": " ".join([platform.machine(), *own[: len(kinds)]]),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def differences(found: Any, expected: Any, exact: bool, where: str = "") -> list[str]:
    """Lists where two descriptions differ: in any bit, or beyond the tolerance."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = dict.fromkeys([*expected, *found])
        pairs = [(key, found.get(key, "nothing"), expected.get(key, "nothing")) for key in keys]
        pairs = [pair for pair in pairs if exact or pair[0] not in BITS]
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = [*zip(itertools.count(), found, expected)]
    else:
        alike = found == expected or not exact and _close(found, expected, where)
        return [] if alike else [f"{where}: {found}, expected {expected}"]
    return [line for key, *two in pairs for line in differences(*two, exact, f"{where}.{key}")]


def _close(found: Any, expected: Any, where: str) -> bool:
    if not (isinstance(found, float) and isinstance(expected, float)):
        return False
    least = POINTS if PERCENT.search(where) else ABSOLUTE
    return math.isclose(found, expected, rel_tol=RELATIVE, abs_tol=least)
