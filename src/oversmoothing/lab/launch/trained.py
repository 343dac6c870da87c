"""A trained run: its network is loaded from its folder."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.image_set import ImageSet
from oversmoothing.lab.launch.check import run_problems
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import parts, run_folder
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.store.identity import short_name
from oversmoothing.lab.store.lookup import config_of, find
from oversmoothing.lab.store.results import read_result
from oversmoothing.lab.store.weights import (
    read_weights,
    weights_of,
    weights_path,
)
from oversmoothing.lab.tasks.base import Labels, Task


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A run with the trained network of one seed.

    Args:
        folder: of the run.
        seed: of the network.
        weights: file of its weights.
        config: of the run.
        network: in evaluation mode.
        label_names: names of the labels 0, 1, …; empty if the task does not label pixels.
    """

    folder: Path
    seed: int
    weights: Path
    config: DictConfig
    network: nn.Module
    label_names: tuple[str, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the K classes, without background."""
        return self.label_names["background" in self.label_names[:1] :]

    @property
    def task_name(self) -> str:
        """Name of the task: ``wsss``, ``segmentation``."""
        return short_name(self.config.task)

    @cached_property
    def task(self) -> Task:
        """The task, with the options of the run."""
        return build(self.config.task)

    @cached_property
    def data(self) -> ImageSet:
        """The data set of the run. Raises InputError if it is missing."""
        return build(self.config.data)

    @property
    def title(self) -> str:
        """Title for figures: ``without centering``, ``γ = −1``, or the name of another method."""
        node, gamma = self.config.aggregator, self.config.aggregator.get("gamma")
        if short_name(node) == "none" or gamma == 0:
            return "without centering"
        own = node._target_.split(".")[-1]
        return own if gamma is None else f"γ = {gamma:g}".replace("-", "−")


def load(
    run: str | Path,
    seed: int | None = None,
    on: str = "auto",
    tasks: Sequence[str] = ("wsss",),
) -> TrainedRun:
    """Loads a trained network; the config of its run may name any class, which is then called.

    Args:
        run: folder of a run, or its name or id below ``outputs``.
        seed: of the network; None: the first that was trained.
        on: device, as in a config.
        tasks: accepted tasks.

    Raises:
        InputError: the run does not exist or is of another task; the seed has no weights; weights
            are damaged or do not fit the config; or the config is wrong.
    """
    folder = find(run)
    config = config_of(folder, tasks)
    if problems := run_problems(config):
        raise Problems([f"{folder / 'config.yaml'}: {line}" for line in problems])
    found = weights_of(folder, config)
    seed = min(found) if seed is None else seed
    require_seed(folder, found, seed)
    state = read_weights(found[seed])
    own = {"weights": "none", "sha256": None}.items()  # the run's weights are loaded below
    config.backbone.update({key: value for key, value in own if key in config.backbone})
    label_names = _label_names(folder, config)
    with warnings.catch_warnings():  # the position embedding is not random but the run's
        warnings.filterwarnings("ignore", "backbone.weights=none")
        network = untrained(config, label_names)
    _fill(network, state, found[seed])
    network = network.to(device(on)).eval()
    return TrainedRun(folder, seed, found[seed], config, network, label_names)


def require_seed(folder: Path, found: Iterable[int], seed: int) -> None:
    """Raises InputError unless a seed is among those that were trained."""
    if seed not in found:
        known = ", ".join(map(str, sorted(found)))
        raise InputError(f"{folder}: no weights of seed {seed}; known seeds: {known}")


def _fill(network: nn.Module, state: dict[str, Any], file: Path) -> None:
    """Loads a state into a network; raises InputError with the file if it does not fit."""
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(
            f"{file}: does not fit the config.yaml next to it, or is of an earlier "
            "version; move the folder away and run its command again"
        ) from error


def untrained(config: DictConfig, label_names: Sequence[str], seed: int | None = None) -> nn.Module:
    """Builds the untrained network of a seed on the CPU.

    Args:
        config: composed.
        label_names: of its data; empty: read the data.
        seed: None: the first of the config.

    Raises:
        InputError: a part refuses its options.
    """
    own = parts(config, Labels(tuple(label_names)) if label_names else build(config.data))
    seeds = [config.seeds[0] if seed is None else seed]
    return build(config.task).network(own, seeds, torch.device("cpu"))


def of_command(words: Sequence[str], seed: int) -> Path:
    """Returns the folder of a command's run.

    Raises:
        InputError: the network has not been trained; the message contains the command.
    """
    folder = run_folder(compose_config([*words]))
    if not weights_path(folder, seed).exists():
        raise InputError(
            f"{folder}: no trained network of seed {seed}; run `python train.py {' '.join(words)} "
            f"'seeds=[{seed}]'`, or name another run"
        )
    return folder


def _label_names(folder: Path, config: DictConfig) -> tuple[str, ...]:
    """Reads label names from the IoU in the result, so that the images are not needed."""
    for seed in (read_result(folder) or {}).get("seeds", {}).values():
        for key, value in seed.items():
            if key.endswith("_iou") and isinstance(value, dict):
                return tuple(value)
    return getattr(build(config.data), "label_names", ())
