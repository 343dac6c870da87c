"""The mean over all nodes of a graph, in a network that is trained on parts of the graph.

The mean of the values of a part differs from the mean over all nodes: by chance where the nodes of
a part are drawn at random, and by more where they form a cluster of similar nodes. The difference
shifts all nodes of the part alike, and changes from part to part.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from oversmoothing import distributed
from oversmoothing.errors import InputError


class RunningMean(nn.Module):
    """Estimates the mean over all nodes from a part of them, by channel.

    In training, the mean is r + m (b − r), where b is the mean over the part and r a moving average
    of the means of earlier parts; the gradient is that of b. In evaluation, the mean is that of the
    given nodes: then give all of them.

    Args:
        momentum: m, as of torch's BatchNorm; 1: the part's own mean, 0: the mean that ``measuring``
            found last.

    Raises:
        InputError: the momentum is out of range.

    Shapes: v (..., N, C) -> (..., 1, C).
    """

    value: Tensor

    def __init__(self, momentum: float = 0.1) -> None:
        super().__init__()
        if not 0 <= momentum <= 1:
            raise InputError(f"momentum: expected a number from 0 to 1, got {momentum}")
        self.momentum, self.measures = momentum, False
        self.register_buffer("value", torch.empty(0))  # r; empty before it is known
        self.pending: tuple[Tensor, int] | None = None  # sum and number of values since settle()

    def forward(self, v: Tensor) -> Tensor:
        mean = v.mean(dim=-2, keepdim=True)
        if not self.training:
            if self.measures:
                self.value = mean.detach()
            return mean
        now = _precise(mean.detach())
        if 0 < self.momentum < 1:
            total, count = self.pending or (torch.zeros_like(now), 0)
            self.pending = total + v.shape[-2] * now, count + v.shape[-2]
        before = self.value.to(now.dtype) if self.value.numel() else now
        return mean + (before.lerp(now, self.momentum) - now).to(mean.dtype)

    @torch.no_grad()
    def settle(self) -> None:
        """Updates r ← r + m (b − r) with the parts since the last call, in all processes.

        b is the mean over all nodes of these parts; the first update sets r = b. Without new parts,
        r stays the same. At m = 0 and m = 1 there is nothing to update.
        """
        if not 0 < self.momentum < 1:
            return
        total, count = self.pending or (torch.zeros_like(_precise(self.value)), 0)
        total, number = distributed.sum_over_processes([total, torch.full_like(total, count)])
        now, self.pending = total / number.clamp(min=1), None
        before = self.value.to(now.dtype) if self.value.numel() else now
        self.value = torch.where(number > 0, before.lerp(now, self.momentum), before)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: object) -> None:
        if (loaded := state_dict.get(f"{prefix}value")) is not None:
            self.value = torch.empty_like(loaded, device=self.value.device)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return f"momentum={self.momentum}"


def use_running_means(model: nn.Module, momentum: float = 0.1) -> list[RunningMean]:
    """Makes all ``Centered`` aggregators estimate the mean over all nodes from parts of a graph.

    Call ``aggregators.base.settle(model)`` after each optimization step. An aggregator that several
    layers share is copied, since each has its mean.

    Args:
        model: its aggregators ``Centered`` are changed in place.
        momentum: see ``RunningMean``.

    Returns:
        The means, in the order of the layers.
    """
    found: list[RunningMean] = []
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and hasattr(child, "node_mean"):
                if any(child.node_mean is mean for mean in found):
                    child = parent._modules[name] = copy.deepcopy(child)
                child.node_mean = RunningMean(momentum).to(_device(model))
                found.append(child.node_mean)
    return found


@contextmanager
def measuring(means: list[RunningMean]) -> Iterator[None]:
    """Context in which an evaluation pass over all nodes sets the value of every r."""
    for mean in means:
        mean.measures = True
    try:
        yield
    finally:
        for mean in means:
            mean.measures = False


def _precise(x: Tensor) -> Tensor:
    """Returns x in float32 or wider; in half precision a sum over many nodes would overflow."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))
