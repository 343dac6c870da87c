"""Files of tensors: those of torch.save, and safetensors to share. Reading them runs no code."""

import io
import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.files import OUTPUTS, write_atomically
from oversmoothing.lab.store.identity import short_name

SHARED = "model.safetensors"  # the weights of an exported run
EMPTY = "empty"  # key of its metadata: names of the extra states that are None


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Writes tensors, numbers, strings, lists and dicts atomically.

    Raises:
        InputError: the file cannot be written.
    """
    buffer = io.BytesIO()  # torch.save to a file does not report a full disk
    torch.save(content, buffer)
    write_atomically(path, lambda file: file.write(buffer.getbuffer()), OUTPUTS)


def load_tensors(path: Path) -> Any:
    """Loads a file of ``torch.save`` to the CPU.

    Raises:
        ValueError: it is damaged, or holds more than tensors, numbers, strings, lists and dicts.
        OSError: it cannot be read.
    """
    try:
        return torch.load(path, "cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch may raise any error for a damaged file
        raise ValueError(reason_of(error)) from error


def weights_path(folder: Path, *seeds: int) -> Path:
    """Returns the path of the trained weights of a seed, or of seeds trained together."""
    return Path(folder) / f"weights-seed{'-'.join(map(str, seeds))}.pt"


def weights_of(folder: Path, config: DictConfig) -> dict[int, Path]:
    """Maps each trained seed to the file of its weights.

    Raises:
        InputError: no training has finished.
    """
    if (exported := folder / SHARED).is_file():
        return {int(config.seeds[0]): exported}
    numbers = {path: path.stem.removeprefix("weights-seed") for path in folder.glob("weights-*.pt")}
    found = {int(number): path for path, number in numbers.items() if number.isdigit()}
    if not found and short_name(config.task) == "nodes":
        raise InputError(
            f"{folder}: runs of task=nodes store no weights; measure them while they train, with "
            "task.layer_metrics=true"
        )
    if not found:
        done = (folder / "result.json").exists()
        why = "its weights are missing" if done else "no trained weights yet"
        raise InputError(
            f"{folder}: {why}; they are saved when a training ends (seeds: "
            f"{', '.join(map(str, config.seeds))}); "
            f"{'remove result.json there and ' if done else ''}run its command again"
        )
    return found


def read_weights(path: Path) -> dict[str, Any]:
    """Loads a state dict to the CPU, from a file of ``torch.save`` or of ``share_weights``.

    Raises:
        InputError: the file is missing or damaged.
    """
    shared = path.suffix == ".safetensors"
    try:
        state = _read_shared(path) if shared else load_tensors(path)
        if not isinstance(state, dict):
            raise ValueError("no mapping of names to tensors")
        return state
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        way_out = (
            "export the run again, or download the file again"
            if shared
            else "remove the folder's result.json and this file, and run its command again"
        )
        raise InputError(f"{path}: damaged, cannot be read as weights; {way_out}") from error


def share_weights(path: Path, state: dict[str, Tensor | None]) -> None:
    """Writes a state dict as safetensors; tensors that share memory are written once each.

    Raises:
        InputError: the file cannot be written.
    """
    tensors = {key: value for key, value in state.items() if value is not None}
    whole = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    empty = json.dumps([key for key in state if key not in tensors])
    content = to_safetensors(whole, {"format": "pt", EMPTY: empty})
    write_atomically(path, lambda file: file.write(content))


def _read_shared(path: Path) -> dict[str, Tensor | None]:
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        empty = json.loads((file.metadata() or {}).get(EMPTY, "[]"))
    return tensors | dict.fromkeys(empty)
