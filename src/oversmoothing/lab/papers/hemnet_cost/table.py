"""The cost columns of HEMNet's Table 3: FLOPs, memory and parameters of ResNet-101 with a unit.

    python scripts/figure.py cost

Operations are counted and not computed, so no GPU, weights or data are needed. The paper does not
describe its way of counting, so the table names the closest one for each column.
"""

import json
from functools import partial
from typing import Any

from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.launch.loading import untrained
from oversmoothing.lab.papers import figure_parser
from oversmoothing.lab.papers.hemnet_cost.count import Cost, best_fit, cost_by_part
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.store.files import write_text

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
Costs = dict[str, Cost]


def main(argv: list[str]) -> int:
    """Writes ``cost.json`` and ``tables/cost.md``."""
    parser = figure_parser(__name__, __doc__, pdf=False, folder=True)
    folder = parser.parse_args(argv).target
    measured = {(dim, name): _costs(dim, name) for dim in DIMS for name in AGGREGATORS}
    narrow = {dim: _costs(dim, "none", HEADS[1])["head"] for dim in DIMS}
    fits = [fit for source in PUBLISHED for fit in _fits(source, measured, narrow)]
    rows = [
        {"dim": dim, "aggregator": name, "parts": {part: vars(c) for part, c in costs.items()}}
        for (dim, name), costs in measured.items()
    ]
    content = {"command": "python scripts/figure.py cost", "size": SIZE, "batch": 1, "rows": rows,
               "published": PUBLISHED, "fits": fits}  # fmt: skip
    shown = markdown(measured, fits)
    write_text(folder / "cost.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / "tables/cost.md", shown)
    print(shown, folder / "tables/cost.md", sep="\n")
    return 0


def _costs(dim: int, aggregator: str, head_dim: int = HEADS[0]) -> Costs:
    words = [f"backbone.dim={dim}", f"aggregator={aggregator}", f"task.head_dim={head_dim}"]
    config = compose_config([*NETWORK, *words])
    return cost_by_part(partial(untrained, config, LABELS), SIZE)


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
            found.append({"source": source, "column": column, "published": published, **vars(fit)})
    return found


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
