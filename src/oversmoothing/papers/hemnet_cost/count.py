"""Counts multiply-adds, parameters and saved activations of a segmentation network.

The operations run on tensors without content. The counts are therefore exact and do not depend on
the machine.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from oversmoothing.aggregators.em_bases import MovingBases
from oversmoothing.tasks.segmentation.network import Segmenter

PARTS = {
    "backbone": "backbone.network",
    "reduction": "backbone.reduce",
    "unit": "backbone.unit",
    "head": "head",
}


@dataclass(frozen=True)
class Cost:
    """The cost of one part of a network, or of several.

    Args:
        macs: multiply-adds of convolutions and matrix products in a forward pass.
        parameters: number of trained parameters, including the bases of EM attention.
        saved: bytes that a forward pass in training saves for the backward pass, in float32,
            without parameters. A tensor that several operations save counts once.
    """

    macs: int
    parameters: int
    saved: int

    def __add__(self, other: "Cost") -> "Cost":
        own, others = vars(self).values(), vars(other).values()
        return Cost(*(a + b for a, b in zip(own, others)))


def cost_by_part(make: Callable[[], Segmenter], size: int) -> dict[str, Cost]:
    """Returns the costs of ``backbone``, ``reduction``, ``unit`` and ``head`` on a square image.

    Args:
        make: builds the network, whose backbone is a CNN.
        size: side of the image in pixels.
    """
    with FakeTensorMode():
        network = make().train()
        modules = {name: network.get_submodule(path) for name, path in _present(network).items()}
        counter, saved = FlopCounterMode(display=False), Counter()
        with counter, _saved_by_part(network, modules, saved):
            network(torch.zeros(1, 3, size, size))
    flops = counter.get_flop_counts()
    prefix = type(network).__name__
    return {
        name: Cost(
            macs=sum(flops.get(f"{prefix}.{PARTS[name]}", {}).values()) // 2,
            parameters=_parameters(module),
            saved=saved[name],
        )
        for name, module in modules.items()
    }


def _present(network: Segmenter) -> dict[str, str]:
    without = {"unit"} if network.backbone.unit is None else set()
    return {name: path for name, path in PARTS.items() if name not in without}


def _parameters(module: nn.Module) -> int:
    bases = [m.bases.numel() for m in module.modules() if isinstance(m, MovingBases)]
    return sum(p.numel() for p in module.parameters()) + sum(bases)


@contextmanager
def _saved_by_part(
    network: nn.Module, modules: Mapping[str, nn.Module], saved: Counter
) -> Iterator[None]:
    """Adds up what autograd saves, for the part that runs when a tensor is first saved."""
    known = {t.untyped_storage()._cdata: t for t in [*network.parameters(), *network.buffers()]}
    running: list[str] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            known[storage._cdata] = tensor  # kept alive, so that its address is not used again
            saved[running[-1] if running else "else"] += storage.nbytes()
        return tensor

    with ExitStack() as stack:
        for name, module in modules.items():
            handles = (
                module.register_forward_pre_hook(partial(_enter, running, name)),
                module.register_forward_hook(partial(_leave, running)),
            )
            for handle in handles:
                stack.callback(handle.remove)
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept))
        yield


def _enter(running: list[str], name: str, *_: object) -> None:
    running.append(name)


def _leave(running: list[str], *_: object) -> None:
    running.pop()


@dataclass(frozen=True)
class Fit:
    """A way of counting that comes close to published numbers.

    Args:
        convention: what is counted, and the unit.
        values: the counts, in the order of the published ones.
        error: largest relative difference.
    """

    convention: str
    values: tuple[float, ...]
    error: float


def best_fit(
    published: Sequence[float],
    measured: Mapping[str, Sequence[int]],
    units: Mapping[str, float],
) -> Fit:
    """Returns the closest combination of what is counted and of the unit.

    Args:
        published: numbers that were all counted in the same way.
        measured: what may be counted -> the counts, in the order of ``published``.
        units: name of a unit -> its size.
    """
    fits = []
    for what, counts in measured.items():
        for unit, size in units.items():
            values = tuple(count / size for count in counts)
            error = max(abs(v / p - 1) for v, p in zip(values, published, strict=True))
            fits.append(Fit(f"{what}, {unit}", values, error))
    return min(fits, key=lambda fit: fit.error)
