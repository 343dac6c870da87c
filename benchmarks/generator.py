"""Compares time and memory of `data=sbm` with one Bernoulli draw per pair of nodes.

    python benchmarks/generator.py
    python benchmarks/generator.py --nodes 1000000 --degrees 20

Every number is measured in a new process, without its imports; seconds are CPU time. Draws per pair
take quadratic time, so they are measured up to 30,000 nodes. Edges are undirected; a graph has both
directions of each.
"""

import argparse
import time
import warnings

import record
import torch
from measure import peak_bytes, printed_by_fresh_process
from torch import Tensor

from oversmoothing.lab.data import csbm
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.script import run_script

QUADRATIC = 30_000  # nodes


def main() -> int:
    parser = record.parser_of(__doc__)
    sizes = [1_000, 10_000, 30_000, 100_000, 1_000_000]
    parser.add_argument("--nodes", nargs="*", type=int, default=sizes)
    parser.add_argument("--degrees", nargs="*", type=float, default=[10.0, 20.0])
    parser.add_argument("--of", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of isolated nodes
    if options.of:
        what, form, nodes, degree = options.of
        print(measured(what, form, int(nodes), float(degree)))
        return 0
    rows = []
    for nodes in options.nodes:
        for degree in options.degrees:
            rows += of_size(nodes, degree)
    record.save(rows)
    return 0


def of_size(nodes: int, degree: float) -> list[record.Row]:
    """Seconds and memory of a graph."""

    def of(what: str, form: str = "csbm") -> int:
        return int(printed_by_fresh_process("--of", what, form, str(nodes), str(degree))[-1])

    work = f"data=sbm, {nodes:,} nodes, {of('pairs'):,} edges"
    seconds, beside = [of("µs") / 1e6], {}
    if nodes <= QUADRATIC:
        coins = [of("µs", "coins") / 1e6]
        beside = {"peer": "one Bernoulli draw per pair of nodes", "theirs": coins}
    memory = [of("bytes") / 1e6]
    return [record.row(work, "CPU s", seconds, **beside), record.row(work, "peak MB", memory)]


def measured(what: str, form: str, nodes: int, degree: float) -> int:
    """Measures one graph: microseconds, bytes, or number of pairs."""
    if form == "coins":
        csbm.draw = coins

    def draw() -> Graph:
        return csbm.generate(num_nodes=nodes, degree=degree)

    if what == "bytes":
        return peak_bytes(draw, torch.device("cpu"))
    began = time.process_time()
    graph = draw()
    seconds = time.process_time() - began
    return graph.edges.shape[1] // 2 if what == "pairs" else round(1e6 * seconds)


def coins(
    N: int, num_classes: int, inside: float, across: float, generator: torch.Generator
) -> Tensor:
    """Every pair i < j by its own coin, row by row: memory stays linear. -> (2, E)."""
    y, columns = torch.arange(N) % num_classes, []
    for i in range(N):
        same = y[i + 1 :] == y[i]
        flips = torch.rand(same.shape[0], generator=generator, dtype=torch.float64)
        columns.append((flips < torch.where(same, inside, across)).nonzero()[:, 0] + i + 1)
    rows = torch.repeat_interleave(torch.tensor([len(c) for c in columns]))
    return torch.stack([rows, torch.cat(columns)])


if __name__ == "__main__":
    run_script(main)
