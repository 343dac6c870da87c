"""The cost columns of HEMNet's Table 3: FLOPs, memory and parameters of ResNet-101 with a unit.

    oversmoothing figure cost

The operations run on tensors without content, so the counts are exact and need no GPU, weights or
data. The paper does not describe its way of counting, so the table names the closest one for each
column.
"""

import copy
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker

from oversmoothing.aggregators.em import MovingBases
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.trained import untrained
from oversmoothing.lab.papers import figure_parser
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.store.files import write_text
from oversmoothing.lab.tasks.segmentation_network import Segmenter

SIZE, LABELS = 513, range(21)  # pixels; VOC's
DIMS, HEADS = (256, 512), (256, 128)  # 256: EMANet's code
AGGREGATORS = {
    "none": "no unit",
    "em": "EM",
    "em_gradient": "EM with gradients",
    "hem": "HEM",
    "external": "external",
}
NETWORK = ["experiment=seg_voc_hem", "backbone=resnet101s", "backbone.weights=none"]
PARTS = {
    "backbone": "backbone.network",
    "reduction": "backbone.reduce",
    "unit": "backbone.unit",
    "head": "head",
}
# ResNet-101 alone, then the addition with 256 and with 512 channels; in G, MB and M.
PUBLISHED = {
    "EMANet's README": {
        "FLOPs": (190.6, (21.1, 43.1)),
        "memory": (2603.0, (12.3, 22.1)),
        "parameters": (42.6, (4.87, 10.0)),
    },
    "HEMNet, Table 3": {
        "FLOPs": (370.1, (45.2, 92.3)),
        "memory": (6874.0, (236.0, 331.0)),
        "parameters": (40.7, (5.15, 10.6)),
    },
}
FIELDS = {"FLOPs": "macs", "memory": "saved", "parameters": "parameters"}
UNITS = {
    "FLOPs": {"multiply-adds, G = 10⁹": 1e9, "2 a multiply-add, G = 10⁹": 5e8,
              "multiply-adds, G = 2³⁰": 2**30, "2 a multiply-add, G = 2³⁰": 2**29},
    "memory": {"M = 10⁶ bytes": 1e6, "M = 2²⁰ bytes": 2**20},
    "parameters": {"M = 10⁶": 1e6, "M = 2²⁰": 2**20},
}  # fmt: skip
PROPOSED = {"EMANet's README": "em", "HEMNet, Table 3": "hem"}


def main(argv: list[str]) -> int:
    """Writes ``cost.json`` and ``tables/cost.md``."""
    folder = figure_parser(__doc__, pdf=False).parse_args(argv).target
    measured = {(dim, name): _costs(dim, name) for dim in DIMS for name in AGGREGATORS}
    narrow = {dim: _costs(dim, "none", HEADS[1])["head"] for dim in DIMS}
    fits = [fit for source in PUBLISHED for fit in _fits(source, measured, narrow)]
    rows = [
        {"dim": dim, "aggregator": name, "parts": {part: vars(c) for part, c in costs.items()}}
        for (dim, name), costs in measured.items()
    ]
    content = {"command": "oversmoothing figure cost", "size": SIZE, "batch": 1, "rows": rows,
               "published": PUBLISHED, "fits": fits}  # fmt: skip
    shown = markdown(measured, fits)
    write_text(folder / "cost.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / "tables/cost.md", shown)
    print(shown, folder / "tables/cost.md", sep="\n")
    return 0


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
        return Cost(*(a + b for a, b in zip(vars(self).values(), vars(other).values())))


Costs = dict[str, Cost]  # part -> cost


def _costs(dim: int, aggregator: str, head_dim: int = HEADS[0]) -> Costs:
    words = [f"backbone.dim={dim}", f"aggregator={aggregator}", f"task.head_dim={head_dim}"]
    config = compose_config([*NETWORK, *words])
    return cost_by_part(partial(untrained, config, LABELS), SIZE)


def cost_by_part(make: Callable[[], Segmenter], size: int) -> Costs:
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


def _fits(
    source: str, measured: dict[tuple[int, str], Costs], narrow: dict[int, Cost]
) -> list[dict[str, Any]]:
    """Finds the closest way of counting for each column: ResNet-101, then the added unit."""
    costs = [measured[dim, PROPOSED[source]] for dim in DIMS]
    both = [c["reduction"] + c["unit"] for c in costs]
    added = {
        "unit": [c["unit"] for c in costs],
        "reduction + unit": both,
        f"reduction + unit + head of {HEADS[0]}": [b + c["head"] for b, c in zip(both, costs)],
        f"reduction + unit + head of {HEADS[1]}": [b + narrow[d] for b, d in zip(both, DIMS)],
    }
    found, alone = [], {"ResNet-101": [costs[0]["backbone"]]}
    for column, (base, more) in PUBLISHED[source].items():
        for published, counted in (((base,), alone), (more, added)):
            counts = {k: [getattr(c, FIELDS[column]) for c in v] for k, v in counted.items()}
            fit = best_fit(published, counts, UNITS[column])
            found.append({"source": source, "column": column, "published": published, **fit})
    return found


def best_fit(
    published: Sequence[float], measured: Mapping[str, Sequence[int]], units: Mapping[str, float]
) -> dict[str, Any]:
    """Returns the closest combination of what is counted and of the unit.

    Args:
        published: numbers that were all counted in the same way.
        measured: what may be counted -> the counts, in the order of ``published``.
        units: name of a unit -> its size.

    Returns:
        ``convention``: what is counted, and the unit; ``values``: the counts; ``error``: the
        largest relative difference.
    """
    fits = []
    for what, counts in measured.items():
        for unit, size in units.items():
            values = tuple(count / size for count in counts)
            error = max(abs(v / p - 1) for v, p in zip(values, published, strict=True))
            fits.append({"convention": f"{what}, {unit}", "values": values, "error": error})
    return min(fits, key=lambda fit: fit["error"])


def markdown(measured: dict[tuple[int, str], Costs], fits: list[dict[str, Any]]) -> str:
    """Returns a table of the costs, and one of how the published costs may have been counted."""
    base = measured[DIMS[0], "none"]["backbone"]
    head = ["network", "multiply-adds, G", "FLOPs, G", "saved activations, MB", "parameters, M"]
    rows = [["ResNet-101, output stride 8", *_cells(base, "")]]
    for (dim, name), costs in measured.items():
        added = sum((costs[part] for part in costs if part != "backbone"), Cost(0, 0, 0))
        rows.append([f"{AGGREGATORS[name]} ({dim})", *_cells(added, "+")])
    text = (
        f"One image of {SIZE} × {SIZE}, float32. A + is what reduction (3 × 3 convolution), unit, "
        f"and head of {HEADS[0]} channels add. FLOPs: convolutions and matrix products, 2 a "
        "multiply-add. Saved activations: what a forward pass in training keeps for the backward "
        "pass; a GPU's peak is more.\n\n"
    )
    closest = ["source", "column", "published", "closest count", "values", "largest difference"]
    return f"{text}{table(head, rows)}\n\n{table(closest, map(_fit_cells, fits))}\n"


def _cells(cost: Cost, sign: str) -> list[str]:
    values = (cost.macs / 1e9, 2 * cost.macs / 1e9, cost.saved / 1e6, cost.parameters / 1e6)
    return [f"{sign}{v:.{d}f}" for v, d in zip(values, (2, 2, 1, 2))]


def _fit_cells(fit: dict[str, Any]) -> list[str]:
    published, values = (", ".join(f"{v:.4g}" for v in fit[k]) for k in ("published", "values"))
    fits = fit["convention"] if fit["error"] < 0.05 else f"none ({fit['convention']})"
    error = f"{100 * fit['error']:.1f} %"
    return [fit["source"], fit["column"], published, fits, values, error]
