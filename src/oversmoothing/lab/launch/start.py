"""The start of a run: its task, its parts, and the network of its first seeds."""

import os

import torch
from omegaconf import DictConfig
from torch import nn

from oversmoothing.lab.arguments import build
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.tasks.base import Parts, Task


class Start:
    """The task and parts of a config; each is built once.

    Args:
        config: composed, with checked names and types.

    Raises:
        InputError: a part refuses its arguments, or data are missing or damaged.
    """

    def __init__(self, config: DictConfig) -> None:
        self.device = device(config.device)
        _set_up(config, self.device)
        self.task: Task = build(config.task)
        data = build(config.data) if config.data else None
        self.parts = parts(config, data)
        self._built: tuple[list[int], nn.Module] | None = None

    def groups(self, seeds: list[int]) -> list[list[int]]:
        """Divides seeds into the groups that the task trains together."""
        return [seeds] if self.task.seeds_together else [[seed] for seed in seeds]

    def prepare(self, seeds: list[int]) -> None:
        """Builds and checks the network of the first group of seeds, for a later ``network``.

        Raises:
            InputError: parts or options do not fit each other.
        """
        first = self.groups(seeds)[0]
        self._built = first, self.network(first)

    def network(self, seeds: list[int]) -> nn.Module:
        """Returns the checked network of these seeds; a prepared one is used only once."""
        built, self._built = self._built, None
        if built and built[0] == seeds:
            return built[1]
        network = self.task.network(self.parts, seeds, self.device)
        self.task.check(network, self.parts)
        return network


def parts(config: DictConfig, data: object = None) -> Parts:
    """Builds the backbone, aggregators and trainer of a config, for these data."""
    aggregators = [build(config[key]) for key in ("aggregator", "then")]
    own = [build(config[key]) if config[key] else None for key in ("backbone", "trainer")]
    return Parts(aggregators, *own, data)


def _set_up(config: DictConfig, place: torch.device) -> None:
    """Sets threads, precision of matrix products and determinism."""
    if config.threads:
        torch.set_num_threads(config.threads)
    matmul = config.get("matmul", "high")
    if place.type != "cuda" and matmul != "medium":
        matmul = "highest"
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = matmul != "highest"
    wanted = config.deterministic != "off"
    if wanted:  # required for deterministic matrix products on a GPU
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if wanted or torch.are_deterministic_algorithms_enabled():  # the setter imports the compiler
        torch.use_deterministic_algorithms(wanted, warn_only=config.deterministic == "warn")
