"""What a run leaves in its folder: the config and each seed's weights."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from oversmoothing.config.names import meant
from oversmoothing.errors import InputError

OUTPUTS = Path("outputs")


def find(run: str | Path) -> Path:
    """Folder of a run.

    Raises:
        InputError: there is none.
    """
    places = [Path(run), OUTPUTS / run, *sorted(OUTPUTS.glob(f"*-{Path(run).name}"))]
    for place in places:
        if (place / "config.yaml").is_file():
            return place
    known = sorted({path.parent.name for path in OUTPUTS.glob("*/weights-seed*.pt")})
    hint = meant(str(run), known) if known else f"there is no trained network below {OUTPUTS}"
    raise InputError(f"{run}: no such run; expected a run's folder, name or id; {hint}")


def config_of(folder: Path, tasks: Sequence[str]) -> DictConfig:
    """A run's config, with the folder where it lies now.

    Raises:
        InputError: none that can be read, or that of a run of none of these tasks.
    """
    path = folder / "config.yaml"
    try:
        config = OmegaConf.load(path)
        target = config.task._target_
    except (OSError, YAMLError, OmegaConfBaseException, AttributeError) as error:
        raise InputError(f"{path}: cannot be read as a run's config; run it again") from error
    if target not in [f"oversmoothing.tasks.{task}.run" for task in tasks]:
        raise InputError(f"{folder}: a run of {target}; expected one of task={' or '.join(tasks)}")
    OmegaConf.update(config, "paths.outputs", str(folder.parent))  # wherever it was moved to
    return config


def weights_of(folder: Path, config: DictConfig) -> dict[int, Path]:
    """Seed -> file.

    Raises:
        InputError: no seed was trained to its end.
    """
    numbers = {path: path.stem.removeprefix("weights-seed") for path in folder.glob("weights-*.pt")}
    found = {int(number): path for path, number in numbers.items() if number.isdigit()}
    if not found:
        raise InputError(
            f"{folder}: no trained weights yet; they come at the end of a training (seeds: "
            f"{', '.join(map(str, config.seeds))}); run its command again"
        )
    return found


def read_weights(path: Path) -> dict[str, Any]:
    """A state by name, on the CPU; nothing that the file holds is run.

    Raises:
        InputError: it is damaged.
    """
    try:
        return torch.load(path, "cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{path}: damaged, cannot be read as weights; remove the folder's result.json and this "
            "file, and run its command again"
        ) from error
