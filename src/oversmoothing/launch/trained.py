"""Trained networks, from the folders of their runs."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig
from torch import nn

from oversmoothing.config.compose import compose_config
from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.errors import InputError
from oversmoothing.launch.execute import build, parts, run_folder
from oversmoothing.store.environment import device
from oversmoothing.store.lookup import config_of, find, read_weights, weights_of
from oversmoothing.store.recorder import read_result, weights_path
from oversmoothing.tasks.wsss.crf import CRF
from oversmoothing.tasks.wsss.look import Viewer


@dataclass(frozen=True, eq=False)
class Trained:
    """A run, and one seed's network in evaluation mode; names of the labels 0, 1, …"""

    folder: Path
    seed: int
    config: DictConfig
    network: nn.Module
    label_names: tuple[str, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The K names behind background, where that is a label."""
        return self.label_names[self.label_names[0] == "background" :]

    @property
    def task(self) -> str:
        """``wsss``, ``segmentation``, …"""
        return self.config.task._target_.split(".")[-2]

    @cached_property
    def data(self) -> ImageSet:
        """The run's images. InputError: they are not here."""
        return build(self.config.data)

    @property
    def title(self) -> str:
        """What was aggregated how: ``without centering``, ``γ = −1``, or another method's name."""
        name, gamma = self.config.aggregator._target_, self.config.aggregator.get("gamma")
        if name.endswith(".NoAggregator") or gamma == 0:
            return "without centering"
        return name.split(".")[-1] if gamma is None else f"γ = {gamma:g}".replace("-", "−")

    def viewer(self, crf: bool = False) -> Viewer:
        """Looks at images as the evaluation of a run of ``task=wsss`` does.

        Args:
            crf: refine masks by the run's dense CRF, or by the default one where it has none.
        """
        task = build(self.config.task, _partial_=True).keywords
        own = task["evaluation"].crf or CRF()
        return Viewer(self.network, task["method"], task["evaluation"], own if crf else None)


def load(
    run: str | Path, seed: int | None = None, on: str = "auto", tasks: Sequence[str] = ("wsss",)
) -> Trained:
    """Loads a trained network; nothing that a weights file holds is run.

    The task's module makes it: its ``untrained(backbone, aggregators, label_names, …)`` may also
    ask for options of the task.

    Args:
        run: folder of a run, or its name or id below ``outputs``.
        seed: one of those that were trained; None: the first.
        on: device, as in a config.
        tasks: of which the run must be one.

    Raises:
        InputError: no such run, one of another task, no weights yet, no such seed, or weights that
            are damaged or do not fit the config.
    """
    folder = find(run)
    config = config_of(folder, tasks)
    found = weights_of(folder, config)
    seed = min(found) if seed is None else seed
    if seed not in found:
        known = ", ".join(map(str, sorted(found)))
        raise InputError(f"{folder}: no weights of seed {seed}; there are those of {known}")
    state = read_weights(found[seed])
    config.backbone.update(weights="none", sha256=None)  # those of the run take their place
    label_names = _label_names(folder, config)
    network = untrained(config, label_names)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(
            f"{found[seed]}: does not fit the config.yaml beside it; remove the folder and run its "
            "command again"
        ) from error
    return Trained(folder, seed, config, network.to(device(on)).eval(), label_names)


def untrained(config: DictConfig, label_names: Sequence[str]) -> nn.Module:
    """The network of a config at the start of its training, drawn by torch's generator.

    Raises:
        InputError: what its parts object to.
    """
    make = _module(config).untrained
    known: dict[str, Any] = {**config.task, **parts(config), "label_names": label_names}
    return make(**{name: known[name] for name in inspect.signature(make).parameters})


def _module(config: DictConfig) -> ModuleType:
    return inspect.getmodule(get_object(config.task._target_))


def of_command(words: Sequence[str], seed: int) -> Path:
    """Folder of a command's run. InputError: its weights are not there; says the command."""
    folder = run_folder(compose_config([*words]))
    if not weights_path(folder, seed).exists():
        raise InputError(
            f"{folder}: no trained network of seed {seed}; run `python train.py {' '.join(words)} "
            f"'seeds=[{seed}]'`, or name another run"
        )
    return folder


def _label_names(folder: Path, config: DictConfig) -> tuple[str, ...]:
    """From the IoU of the result, so that the images need not be here; else from them."""
    for seed in (read_result(folder) or {}).get("seeds", {}).values():
        for key, value in seed.items():
            if key.endswith("_iou"):
                return tuple(value)
    return build(config.data).label_names
