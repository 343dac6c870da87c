"""Counts multiply-adds, parameters and saved activations of a segmentation network.

The operations run on tensors without content. The counts are therefore exact and do not depend on
the machine.
"""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker

from oversmoothing.aggregators.em import MovingBases
from oversmoothing.lab.tasks.segmentation.network import Segmenter

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
        parameters: number of parameters, including frozen ones and the bases of EM attention.
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
    network, mode = make().train(), FakeTensorMode()
    with FakeCopyMode(mode):  # networks cannot be moved to a device in FakeTensorMode
        network = copy.deepcopy(network)
    paths = {name: f"{type(network).__name__}.{path}" for name, path in PARTS.items()}
    counter, saved = FlopCounterMode(display=False), Counter()
    with mode, counter, ModuleTracker() as tracker, _saving(network, paths, tracker, saved):
        network(torch.zeros(1, 3, size, size))
    flops = counter.get_flop_counts()
    return {
        name: Cost(
            macs=sum(flops.get(paths[name], {}).values()) // 2,
            parameters=_parameters(network.get_submodule(path)),
            saved=saved[name],
        )
        for name, path in PARTS.items()
        if name != "unit" or network.backbone.unit is not None
    }


def _parameters(module: nn.Module) -> int:
    bases = [m.bases.numel() for m in module.modules() if isinstance(m, MovingBases)]
    return sum(p.numel() for p in module.parameters()) + sum(bases)


def _saving(
    network: nn.Module, paths: Mapping[str, str], tracker: ModuleTracker, saved: Counter
) -> saved_tensors_hooks:
    """Adds up what autograd saves, for the part that runs when a tensor is first saved."""
    known = {t.untyped_storage()._cdata: t for t in [*network.parameters(), *network.buffers()]}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            known[storage._cdata] = tensor  # kept alive, so that its address is not used again
            part = next((name for name, path in paths.items() if path in tracker.parents), "else")
            saved[part] += storage.nbytes()
        return tensor

    return saved_tensors_hooks(pack, lambda kept: kept)


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
    published: Sequence[float], measured: Mapping[str, Sequence[int]], units: Mapping[str, float]
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
