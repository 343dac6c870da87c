"""Files of tensors, written by torch.save. Reading them runs no code."""

import io
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.files import OUTPUTS, write_atomically


def save_tensors(path: Path, content: dict[str, Any], option: str = OUTPUTS) -> None:
    """Writes tensors, numbers, strings, lists and dicts atomically.

    Args:
        option: key of the config that chooses the folder.

    Raises:
        InputError: the file cannot be written.
    """
    buffer = io.BytesIO()  # torch.save to a file does not report a full disk
    torch.save(content, buffer)
    write_atomically(path, lambda file: file.write(buffer.getbuffer()), option)


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
    numbers = {path: path.stem.removeprefix("weights-seed") for path in folder.glob("weights-*.pt")}
    found = {int(number): path for path, number in numbers.items() if number.isdigit()}
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
    """Loads a state dict to the CPU.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        return load_tensors(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: damaged, cannot be read as weights; remove the folder's result.json and this "
            "file, and run its command again"
        ) from error
