"""The task contract: what a task needs, the network that it trains, and what a run of it returns.

A run is made of a task and of the parts that its config names. The launcher builds them and calls

1. ``Task.network(parts, seeds, device)``, which draws the network,
2. ``Task.check(network, parts)``, which refuses options that do not fit,
3. ``Task.run(network, job)``, which trains and measures, and returns one result per seed.

Before a sweep starts, steps 1 and 2 are tried for each of its runs with ``Task.toy`` in the place
of the data, so that every mistake is found before any work. A task is a class, and its YAML names
it as ``_target_``; the arguments of the class are the options of the task.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder

Result = dict[str, Any]


@dataclass(frozen=True)
class Parts:
    """What a run is made of besides its task.

    Args:
        aggregators: factories, in the order in which the aggregators act.
        backbone: factory of the network that hosts them; it takes ``aggregators`` and what the
            task adds. None where the task needs none.
        trainer: the training recipe; None where the task trains nothing.
        data: the data set; None where the task needs none.
    """

    aggregators: list[Callable[..., Aggregator]]
    backbone: Callable[..., nn.Module] | None = None
    trainer: Any = None
    data: Any = None


@dataclass(frozen=True)
class Job:
    """What a task is asked to run.

    Args:
        parts: as they were given to ``Task.network``.
        seeds: of the network; one, unless the task trains its seeds together.
        recorder: takes logs, checkpoints and trained weights, and shows progress.
        device: where the network is.
    """

    parts: Parts
    seeds: list[int]
    recorder: Recorder
    device: torch.device


@dataclass(frozen=True)
class Labels:
    """Stands for a data set of which only the labels are known.

    Args:
        label_names: names of the labels 0, 1, …
    """

    label_names: tuple[str, ...] = ("background", "thing")

    @property
    def background(self) -> bool:
        """Whether label 0 is background."""
        return self.label_names[0] == "background"


class Task(ABC):
    """What is trained and measured.

    Attributes:
        needs: groups of the config that the task needs, of ``data``, ``backbone`` and ``trainer``;
            a config that names another one is refused.
        seeds_together: whether all seeds are trained in one call of ``run``; if not, one by one.
        toy: stands for the data while a config is checked.
    """

    needs: ClassVar[tuple[str, ...]] = ("data", "backbone", "trainer")
    seeds_together: ClassVar[bool] = False
    toy: ClassVar[Any] = Labels()

    @abstractmethod
    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> nn.Module:
        """Builds the network that ``run`` starts from.

        It depends on the parts and seeds alone. Of the data it may use only what ``toy`` has, too.

        Raises:
            InputError: parts that do not fit the task or each other.
        """

    @classmethod  # noqa: B027 (most accept everything)
    def accept(cls, parts: Parts) -> None:
        """Refuses data or a recipe of another kind than the task needs; called by ``network``.

        Raises:
            InputError: naming the group, what the task needs, and the choices that have it.
        """

    def check(self, network: nn.Module, parts: Parts) -> None:  # noqa: B027 (most need no more)
        """Refuses options that do not fit the network or the parts.

        Raises:
            InputError: naming the option, what was expected and the way out.
        """

    def inputs(self, parts: Parts, number: int, device: torch.device) -> tuple:
        """Arguments of a call of the network in training, of any content.

        The launcher counts with them what a step keeps in memory, if the recipe is a ``Recipe``.

        Args:
            parts: as they were given to ``network``.
            number: of examples.
            device: where the network is.
        """
        raise NotImplementedError

    @abstractmethod
    def run(self, network: nn.Module, job: Job) -> dict[int, Result]:
        """Trains and measures.

        A run can be killed at any time and is then started again with the same arguments: keep the
        state in ``job.recorder``'s checkpoints.

        Args:
            network: as ``network`` built it, on ``job.device``.
            job: data, seeds, and where results go.

        Returns:
            Seed -> numbers by name, as JSON can hold them. The summary shows each number at the
            top level; ``conditions`` says in words how numbers were measured.

        Raises:
            InputError: bad data, or training that diverges.
        """


class OnBackbone(nn.Module):
    """A network that a task trains: a ``backbone`` and what reads its features."""

    def pretrained_parts(self) -> list[nn.Module]:
        """The modules that have pretrained weights."""
        return [self.backbone.network] if self.backbone.pretrained else []


def require_trainer(trainer: Any, kind: type, task: str, choices: str) -> None:
    """Raises InputError unless a recipe is of the kind that a task trains with, or None."""
    if not isinstance(trainer, kind | None):
        raise InputError(
            f"trainer: task {task} cannot train with {type(trainer).__name__}; choose {choices}"
        )


def require_data(data: Any, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raises InputError unless the data are of a kind that a task can use.

    Args:
        data: a data set.
        kinds: accepted classes.
        wanted: what the task needs and which data have it, for the message.
    """
    if not isinstance(data, kinds):
        raise InputError(f"data {getattr(data, 'name', type(data).__name__)}: {wanted}")


def require_backbone(backbone: nn.Module, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raises InputError unless a backbone is of a kind that a task can train.

    Args:
        wanted: the choices that are, for the message.
    """
    if not isinstance(backbone, kinds):
        raise InputError(f"backbone: this task cannot train {type(backbone).__name__}; {wanted}")


def weights_of(backbone: nn.Module) -> str:
    """Where a backbone's weights come from: ``pretrained`` or ``from scratch``."""
    return "pretrained" if backbone.pretrained else "from scratch"


def require_patches(backbone: nn.Module, sizes: dict[str, int]) -> None:
    """Raises InputError unless every size is a multiple of the backbone's patch.

    Args:
        sizes: option of the task, such as ``augment.crop`` -> pixels.
    """
    for key, size in sizes.items():
        if size < backbone.patch or size % backbone.patch:
            raise InputError(
                f"task.{key}: expected a multiple of the patch, {backbone.patch} px, got {size}"
            )
