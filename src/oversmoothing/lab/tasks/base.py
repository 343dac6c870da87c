"""The interface of tasks: what a task needs, the network that it trains, and its results.

A run consists of a task and of the parts in its config. The launcher builds them and calls

1. ``Task.network(parts, seeds, device)``, which draws the network,
2. ``Task.check(network, parts)``, which refuses options that do not fit,
3. ``Task.run(network, job)``, which trains and measures, and returns one result per seed.

Before a sweep starts, steps 1 and 2 are tried for all its runs with ``Task.toy`` instead of the
data, so that every mistake is found before any work. A task is a class, which its YAML names as
``_target_``; the arguments of the class are the options of the task.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.store.run import Recorder

Result = dict[str, Any]


@dataclass(frozen=True)
class Parts:
    """The parts of a run besides its task.

    Args:
        aggregators: factories, in the order in which the aggregators act.
        backbone: factory of the network with the aggregators; it takes ``aggregators`` and the
            arguments that the task adds. None if the task needs no backbone.
        trainer: the training recipe; None if the task trains nothing.
        data: the data set; None if the task needs none.
    """

    aggregators: list[Callable[..., Aggregator]]
    backbone: Callable[..., nn.Module] | None = None
    trainer: Any = None
    data: Any = None


@dataclass(frozen=True)
class Job:
    """What a task needs to run.

    Args:
        parts: the same as for ``Task.network``.
        seeds: of the network; one, unless the task trains its seeds together.
        recorder: takes logs, checkpoints and trained weights, and shows progress.
        device: of the network.
    """

    parts: Parts
    seeds: list[int]
    recorder: Recorder
    device: torch.device


@dataclass(frozen=True)
class Labels:
    """Replaces a data set if only its labels are known.

    Args:
        label_names: names of the labels 0, 1, …
    """

    label_names: tuple[str, ...] = ("background", "thing")

    @property
    def background(self) -> bool:
        """Whether label 0 is background."""
        return self.label_names[0] == "background"


class Task(ABC):
    """Base class of tasks.

    Attributes:
        needs: groups of the config that the task needs, among ``data``, ``backbone`` and
            ``trainer``; a config with one that is not needed is refused.
        seeds_together: whether one call of ``run`` trains all seeds; if not, each call trains one.
        diagnoses: whether ``run`` measures the layers during training (``diagnose_every``).
        toy: replaces the data while a config is checked.
        kinds: ``data`` or ``trainer`` -> classes that the task accepts, and a text for the error
            that names the choices.
    """

    needs: ClassVar[tuple[str, ...]] = ("data", "backbone", "trainer")
    seeds_together: ClassVar[bool] = False
    diagnoses: ClassVar[bool] = False
    toy: ClassVar[Any] = Labels()
    kinds: ClassVar[dict[str, tuple[Any, str]]] = {}

    @abstractmethod
    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> nn.Module:
        """Builds the network that ``run`` starts from.

        The network depends only on parts and seeds. It may use only those attributes of the data
        that ``toy`` also has.

        Raises:
            InputError: parts do not fit the task or each other.
        """

    @classmethod
    def accept(cls, parts: Parts) -> None:
        """Raises InputError unless data and recipe are of the task's ``kinds``.

        It is called by ``network``.
        """
        for group, (kinds, wanted) in cls.kinds.items():
            require_kind(group, getattr(parts, group), kinds, wanted)

    def check(self, network: nn.Module, parts: Parts) -> None:  # noqa: B027 (most need no more)
        """Raises InputError unless the options fit the network and the parts."""

    def chance(self, parts: Parts, seed: int) -> dict[str, float]:
        """Returns each metric's value if all answers are the most frequent class; may be empty."""
        return {}

    @abstractmethod
    def run(self, network: nn.Module, job: Job) -> dict[int, Result]:
        """Trains and measures.

        A run can be killed at any time and is then started again with the same arguments, so the
        state must be kept in checkpoints of ``job.recorder``.

        Args:
            network: from ``network``, on ``job.device``.
            job: parts, seeds, recorder and device.

        Returns:
            Seed -> numbers by name, in types of JSON. The summary shows all numbers at the top
            level; ``conditions`` describes how they were measured.

        Raises:
            InputError: data are bad, or training diverges.
        """


class OnBackbone(nn.Module):
    """A network that a task trains: a ``backbone`` with heads."""

    def pretrained_parts(self) -> list[nn.Module]:
        """The modules that have pretrained weights."""
        return [self.backbone.network] if self.backbone.pretrained else []

    def parameter_groups(self, lr: float, head_factor: float) -> list[dict[str, Any]]:
        """Returns the backbone at ``lr``, and all heads at ``head_factor`` times ``lr``."""
        inside = {id(p) for p in self.backbone.parameters()}
        old = [p for p in self.backbone.parameters() if p.requires_grad]
        new = [p for p in self.parameters() if id(p) not in inside]
        return [{"params": old, "lr": lr}, {"params": new, "lr": lr * head_factor}]


def require_kind(group: str, part: Any, kinds: Any, wanted: str) -> None:
    """Raises InputError unless a part is None or of a kind that a task can use.

    Args:
        group: of the config, for the message.
        kinds: accepted class, or several.
        wanted: the choices that are accepted, for the message.
    """
    if part is not None and not isinstance(part, kinds):
        if group == "data":
            raise InputError(f"data {part.name}: {wanted}")
        raise InputError(f"{group}: this task cannot use {type(part).__name__}; {wanted}")


def require_arguments(make: Callable[..., nn.Module], names: Sequence[str], wanted: str) -> None:
    """Raises InputError unless a factory of backbones takes the arguments that a task passes.

    Args:
        make: the factory.
        names: of the arguments.
        wanted: the choices that take them, for the message.
    """
    taken = inspect.signature(make).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
        return
    if missing := [name for name in names if name not in taken]:
        kind = getattr(make, "func", make)
        own = getattr(kind, "__name__", type(kind).__name__)
        lacks = " and no ".join(missing)
        raise InputError(f"backbone: this task cannot use {own}, which takes no {lacks}; {wanted}")


def weights_of(backbone: nn.Module) -> str:
    """Returns the origin of a backbone's weights: ``pretrained`` or ``from scratch``."""
    return "pretrained" if backbone.pretrained else "from scratch"


def require_patches(backbone: nn.Module, sizes: dict[str, int]) -> None:
    """Raises InputError unless every size is a multiple of the backbone's patch.

    Args:
        backbone: with an attribute ``patch``, or without patches.
        sizes: options of the task, such as ``augment.crop``, and their pixels.
    """
    for key, size in sizes.items():
        if size < backbone.patch or size % backbone.patch:
            raise InputError(
                f"task.{key}: expected a multiple of the patch, {backbone.patch} px, got {size}"
            )
