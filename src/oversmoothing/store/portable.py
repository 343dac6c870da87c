"""Trained weights as a safetensors file, which holds tensors and text and runs no code.

A state dict also has what modules keep beside tensors (``_extra_state``: a mapping of names to
tensors, numbers or None). Its tensors become tensors of the file under ``<key>.<name>``, the rest
becomes JSON in the file's metadata, so that a network is restored bit by bit.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.store.files import write_atomically

NAME = "model.safetensors"
EXTRA = "extra_state"  # name of the JSON in the metadata


def write(path: Path, state: dict[str, Any]) -> None:
    """Writes a state dict; tensors that share memory are written once each.

    Raises:
        InputError: the file cannot be written.
    """
    extra = {key: value for key, value in state.items() if not isinstance(value, Tensor)}
    tensors = {key: value for key, value in state.items() if key not in extra}
    rest: dict[str, dict[str, Any]] = {}
    for key, values in extra.items():
        own = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        tensors |= {f"{key}.{name}": value for name, value in own.items()}
        rest[key] = {name: None if name in own else values[name] for name in values}
    whole = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    content = save(whole, {"format": "pt", EXTRA: json.dumps(rest)})
    write_atomically(path, lambda file: file.write(content))


def read(path: Path) -> dict[str, Any]:
    """Reads a state dict to the CPU.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        with safe_open(path, "pt") as file:
            state: dict[str, Any] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            extra = json.loads((file.metadata() or {}).get(EXTRA, "{}"))
        for key, values in extra.items():
            state[key] = {name: state.pop(f"{key}.{name}", value) for name, value in values.items()}
    except (OSError, SafetensorError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: damaged, cannot be read as weights; export the run again, or download the "
            "file again"
        ) from error
    return state
