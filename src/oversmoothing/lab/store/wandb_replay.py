"""Sends a run folder to Weights & Biases; this can be repeated."""

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.lab.store.identity import run_id
from oversmoothing.lab.store.trust import read_config
from oversmoothing.lab.store.wandb_sink import WandbSink, final_numbers, read_lines


def replay(folder: Path, project: str, mode: str, trust: bool = False) -> str:
    """Sends ``metrics.jsonl`` as history and ``result.json`` as summary; returns what was sent.

    Args:
        folder: of the run. If one of its files is damaged, nothing is sent.
        project: W&B project.
        mode: ``offline`` or ``online``.
        trust: let the config name classes and functions of other packages; they are imported.

    Raises:
        InputError: the folder is missing or damaged, or W&B refuses the run.
    """
    config, result = _config(folder, trust), _result(folder)
    rows = len(read_lines(folder / "metrics.jsonl"))
    if not rows and not result:
        raise InputError(f"{folder}: neither metrics.jsonl nor result.json; nothing was run here")
    sink = WandbSink(folder, config, project, mode, seconds=600.0)
    if result:
        sink.summarise(result)
    sink.close()
    sent = f"{folder.name}: {rows} rows{', result' if result else ', no result yet'}"
    return sent if mode == "online" else f"{sent}; wandb sync {sink.run.settings.sync_dir}"


def _config(folder: Path, trust: bool) -> DictConfig:
    """Reads the config of a run; raises InputError if it is missing or damaged."""
    path = folder / "config.yaml"
    if not path.is_file():
        raise InputError(f"{folder}: no run folder (it has no config.yaml); give outputs/<run>")
    config = OmegaConf.create(read_config(path, trust))
    try:
        run_id(config)
    except Exception as error:  # a damaged file, or one of other code, may raise any error
        raise _damaged(path, error) from None
    if "task" not in config:
        raise InputError(f"{path}: no config of a run (it names no task); give outputs/<run>")
    return config


def _result(folder: Path) -> dict[str, Any] | None:
    """Reads ``result.json``; None if there is none yet; raises InputError if it is damaged."""
    path = folder / "result.json"
    if not path.exists():
        return None
    try:
        result = json.loads(path.read_bytes())
        final_numbers(result)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise _damaged(path, error) from None
    return result


def _damaged(path: Path, error: Exception) -> InputError:
    reason = str(error).split("\n")[0][:80]
    return InputError(f"{path}: cannot be read ({reason}); run the command of this run again")
