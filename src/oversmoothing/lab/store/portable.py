"""Trained weights as a safetensors file, which holds tensors and text and runs no code.

The extra state of a module is a tensor or None; the file's metadata name those that are None.
"""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.store.files import write_atomically

NAME = "model.safetensors"
EMPTY = "empty"  # key of the metadata: a list of the names whose value is None


def write(path: Path, state: dict[str, Tensor | None]) -> None:
    """Writes a state dict; tensors that share memory are written once each.

    Raises:
        InputError: the file cannot be written.
    """
    tensors = {key: value for key, value in state.items() if value is not None}
    whole = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    empty = json.dumps([key for key in state if key not in tensors])
    content = save(whole, {"format": "pt", EMPTY: empty})
    write_atomically(path, lambda file: file.write(content))


def read(path: Path) -> dict[str, Tensor | None]:
    """Reads a state dict to the CPU.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            empty = json.loads((file.metadata() or {}).get(EMPTY, "[]"))
        return tensors | dict.fromkeys(empty)
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise InputError(
            f"{path}: damaged, cannot be read as weights; export the run again, or download the "
            "file again"
        ) from error
