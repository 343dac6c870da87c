"""Finds the folder of a run, and reads its config."""

import os
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError, meant, reason_of, shortened
from oversmoothing.lab.store.identity import current, short_name

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


def config_of(folder: Path, tasks: Sequence[str]) -> DictConfig:
    """Reads the config of a run; sets ``paths.outputs`` to the folder where the run is now.

    Args:
        folder: of the run.
        tasks: accepted tasks.

    Raises:
        InputError: the config is damaged, or the run is of another task.
    """
    path = folder / "config.yaml"
    try:
        plain = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        config = OmegaConf.create(current(plain))
        task = short_name(config.task)
    except Exception as error:  # parsers may raise any error for a damaged file
        why = shortened(reason_of(error), 300)
        raise InputError(f"{path}: cannot be read as a run's config ({why})") from error
    if task not in tasks:
        measured = (
            "; to measure its layers, train with task.layer_metrics=true" if task == "nodes" else ""
        )
        expected = " or ".join(tasks)
        raise InputError(f"{folder}: a run of task={task}; expected task={expected}{measured}")
    OmegaConf.update(config, "paths.outputs", str(folder.parent))  # it may have been moved
    return config
