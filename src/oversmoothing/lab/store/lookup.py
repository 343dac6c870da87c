"""Finds a run folder, or the folder of an exported run, and reads its config and weights."""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from oversmoothing.errors import InputError, meant
from oversmoothing.lab.store import portable, tensors
from oversmoothing.lab.store.identity import current, short_name
from oversmoothing.lab.store.trust import read_config

OUTPUTS = Path("outputs")


def find(run: str | Path) -> Path:
    """Finds the folder of a run by its path, name or id.

    Raises:
        InputError: there is no such run.
    """
    folders = sorted(OUTPUTS.iterdir()) if OUTPUTS.is_dir() else []
    named = [path for path in folders if path.name.endswith(f"-{Path(run).name}")]
    for place in (Path(run), OUTPUTS / run, *named):
        if os.path.isfile(place / "config.yaml"):  # Path.is_file() raises for very long names
            return place
    known = sorted({path.parent.name for path in OUTPUTS.glob("*/weights-seed*.pt")})
    hint = meant(str(run), known) if known else f"there is no trained network below {OUTPUTS}"
    raise InputError(f"{run}: no such run; expected a run's folder, name or id; {hint}")


def config_of(folder: Path, tasks: Sequence[str], trust: bool = False) -> DictConfig:
    """Reads the config of a run; sets ``paths.outputs`` to the folder where the run is now.

    Args:
        folder: of the run.
        tasks: accepted tasks.
        trust: let the config name any class or function; see ``store.trust``.

    Raises:
        InputError: the config is damaged or names foreign code, or the run is of another task.
    """
    path = folder / "config.yaml"
    plain = read_config(path, trust)
    try:
        config = OmegaConf.create(current(plain))
        task = short_name(config.task)
    except (OmegaConfBaseException, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: cannot be read as a run's config; run it again") from error
    if task not in tasks:
        raise InputError(f"{folder}: a run of task={task}; expected task={' or '.join(tasks)}")
    OmegaConf.update(config, "paths.outputs", str(folder.parent))  # it may have been moved
    return config


def weights_of(folder: Path, config: DictConfig) -> dict[int, Path]:
    """Maps each trained seed to the file of its weights.

    Raises:
        InputError: no training has finished.
    """
    if (exported := folder / portable.NAME).is_file():
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
    """Loads a state dict to the CPU without running code from the file.

    Raises:
        InputError: the file is damaged.
    """
    if path.suffix == ".safetensors":
        return portable.read(path)
    try:
        state = tensors.load(path)
        if not isinstance(state, dict):
            raise ValueError("no mapping of names to tensors")
        return state
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{path}: damaged, cannot be read as weights; remove the folder's result.json and this "
            "file, and run its command again"
        ) from error
