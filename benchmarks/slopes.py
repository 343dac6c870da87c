"""Measures time and memory of an epoch by number of nodes, 10³ to 10⁶ at degree 10.

    OMP_NUM_THREADS=1 python benchmarks/slopes.py            # 10 minutes of one core
    python benchmarks/slopes.py --largest 100000 --limit 10  # 2 minutes
    python benchmarks/slopes.py --draw                       # the figure alone, from the CSV

An epoch is one training step of one seed: a GCN of two or eight layers with 32 hidden channels on
data=sbm with 32 features. Time is the smallest number of CPU seconds of several epochs, which other
processes disturb less than wall time. Memory is the peak of the resident size while the network is
built and makes its first epoch, above that of the process with the graph. Each pair of method and
size runs in a separate process. A method is not measured beyond the size at which an epoch takes
more than ``--limit`` seconds. Slopes are fitted to log N from 10⁴ nodes on, since fixed costs
dominate below.

Writes slopes.csv and figures/slopes.png, to outputs/, or with --publish to results/.
"""

import argparse
import csv
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import record
import torch
import torch.nn.functional as F
from measure import peak_bytes, printed_by_fresh_process, text

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.sparse import Adjacency
from oversmoothing.lab.data import csbm
from oversmoothing.lab.drawing import files
from oversmoothing.lab.drawing.style import COLOURS, LINES, MARKERS
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.tasks.nodes.loop import keep_freed_memory

FLOOR = "product with Ã alone"
METHODS: dict[str, tuple[int, list[Callable]]] = {  # layers, aggregators
    "vanilla": (2, []),
    "LayerNorm": (2, [LayerNorm]),
    "centered": (2, [Centered]),
    "centered, 8 layers": (8, [Centered, LayerNorm]),
    "PairNorm": (2, [PairNorm]),
    "ContraNorm": (2, [ContraNorm]),
    "ContraNorm, 256 negatives": (2, [partial(ContraNorm, negatives=256)]),
    FLOOR: (0, []),
}
SIZES = [round(10 ** (k / 2)) for k in range(6, 13)]
FITTED_FROM = 10**4
WHY = "neighbours of a random graph lie anywhere in memory, and large graphs leave the cache"
HEADER = ["method", "nodes", "seconds", "mb"]
Row = tuple[str, int, float, float]


def main() -> None:
    options = arguments()
    if options.of:
        return print(*measured(options.of[0], int(options.of[1])))
    known = read(record.RESULTS / "slopes.csv")
    if not options.draw:
        rows = [row for name in options.methods for row in of_method(name, options)]
        known = [row for row in known if row[0] not in options.methods] + rows
        lines = [[name, n, f"{seconds:.3g}", f"{mb:.3g}"] for name, n, seconds, mb in known]
        files.write_csv(options.target / "slopes.csv", HEADER, lines)
        record.save([row for name in options.methods for row in of_slopes(known, name)])
    print(text(table(known)))
    draw(known, options.target / "figures/slopes")


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as file:
        return [(name, int(n), float(s), float(mb)) for name, n, s, mb in [*csv.reader(file)][1:]]


def of_slopes(rows: list[Row], name: str) -> list[record.Row]:
    """Returns the rows of a method: its exponents, and its largest graph."""
    time_slope, memory_slope = slopes(rows, name)
    _, size, seconds, mb = [row for row in rows if row[0] == name][-1]
    work = f"GCN, {METHODS[name][0]} layers, {name.partition(', 8')[0]}"
    if name == FLOOR:
        return [record.row(name, "exponent of time over nodes", [time_slope], note=WHY)]
    largest = 16_000 if size == 10**6 else None
    return [
        record.row(work, "exponent of time over nodes", [time_slope], goal=1.1),
        record.row(work, "exponent of memory over nodes", [memory_slope], goal=1.1),
        record.row(work, f"CPU s per epoch at {size:,} nodes", [seconds]),
        record.row(work, f"peak MB at {size:,} nodes", [mb], goal=largest),
    ]


def of_method(name: str, options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for size in [size for size in SIZES if size <= options.largest]:
        if rows and rows[-1][2] > options.limit:
            break
        seconds, peak = printed_by_fresh_process("--of", name, str(size))
        rows.append((name, size, float(seconds), int(peak) / 1e6))
        print(*rows[-1], flush=True)
    return rows


def measured(name: str, size: int) -> tuple[float, int]:
    """Measures CPU seconds and bytes of an epoch."""
    keep_freed_memory()  # as in train.py
    _epoch(name, 1000)()  # loads everything that is loaded once
    graph = _graph(size)
    seconds: list[float] = []
    steps: list[Callable[[], None]] = []

    def first() -> None:
        steps.append(_epoch(name, size))
        seconds.append(_seconds(steps[0]))

    peak = peak_bytes(first, torch.device("cpu"))
    assert graph is _graph(size)  # the graph existed before and was not counted
    while sum(seconds) < 1 and len(seconds) < 20:
        seconds.append(_seconds(steps[0]))
    return min(seconds), peak


def _graph(size: int) -> csbm.Graph:
    return csbm.generate(num_nodes=size, features=32)


def _epoch(name: str, size: int) -> Callable[[], None]:
    """Returns one training step of a network."""
    graph = _graph(size)
    depth, aggregators = METHODS[name]
    if name == FLOOR:
        adjacency, x = Adjacency(graph.edges, size, "row"), torch.rand(1, size, 32)
        return lambda: adjacency(x)
    net = GCN(aggregators, graph.x, graph.edges, graph.num_classes, [0], depth=depth, hidden=32)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)

    def step() -> None:
        loss = F.cross_entropy(net()[0, graph.train], graph.y[graph.train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _seconds(step: Callable[[], None]) -> float:
    started = time.process_time()
    step()
    return time.process_time() - started


def slopes(rows: list[Row], name: str) -> tuple[float, float]:
    """Fits the exponents of time and memory over N."""
    large = np.array([row[1:] for row in rows if row[0] == name and row[1] >= FITTED_FROM])
    if len(large) < 2:
        return math.nan, math.nan
    n, seconds, mb = np.log(large).T
    return np.polyfit(n, seconds, 1)[0], np.polyfit(n, mb, 1)[0]


def table(rows: list[Row]) -> list[list[str]]:
    """Describes the largest measured size and the slopes."""
    lines = [["", "nodes", "s per epoch", "MB", "slope of time", "of memory"]]
    for name in dict.fromkeys(row[0] for row in rows):
        _, size, seconds, mb = [row for row in rows if row[0] == name][-1]
        fitted = (f"{slope:.2f}" for slope in slopes(rows, name))
        lines.append([name, f"{size:,}", f"{seconds:.3g}", f"{mb:.0f}", *fitted])
    return lines


def draw(rows: list[Row], stem: Path) -> None:
    with plt.rc_context(LINES):
        figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
        for axis, column, label in zip(axes, (2, 3), ("CPU seconds per epoch", "peak memory, MB")):
            for name, colour, marker in zip(METHODS, COLOURS, MARKERS):
                own = [row for row in rows if row[0] == name]
                slope = slopes(rows, name)[column - 2]
                axis.loglog(
                    [row[1] for row in own],
                    [row[column] for row in own],
                    color=colour,
                    marker=marker,
                    markersize=4,
                    label=f"{name}: {slope:.2f}",
                )
            axis.set(xlabel="nodes", ylabel=label)
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}
            axis.legend(title="slope from 10⁴ nodes", fontsize=8, frameon=False, **below)
        print(*files.save(figure, stem))


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="number of nodes")
    parser.add_argument("--limit", type=float, default=10, help="seconds, see above")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--of", nargs=2, help=argparse.SUPPRESS)  # method, nodes
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
