"""Seconds and memory that `data=sbm` takes, beside drawing every pair of nodes by its own coin.

    python benchmarks/generator.py
    python benchmarks/generator.py --nodes 1000000 --degrees 20

Every number is that of a fresh process without its imports; seconds are CPU time. Coins take
quadratic time, so they are measured up to 30,000 nodes. `pairs` are undirected edges; a graph has
both directions of each.
"""

import argparse
import time
import warnings

import torch
from measure import in_fresh_process, peak_bytes, text

from oversmoothing.data.graphs import csbm, sbm
from oversmoothing.data.graphs.graph import Graph
from oversmoothing.launch.script import run_script

FORMS = {"csbm": csbm.generate, "sbm": sbm.generate}  # linear; quadratic, that of older runs
QUADRATIC = 30_000  # nodes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
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
    rows = [["nodes", "degree", "pairs", "seconds", "MB", "coins: seconds", "× ours"]]
    for nodes in options.nodes:
        for degree in options.degrees:
            rows.append(row(nodes, degree))
    print(text(rows))
    return 0


def row(nodes: int, degree: float) -> list[str]:
    """A line of the table."""
    size = (str(nodes), str(degree))
    pairs = in_fresh_process("--of", "pairs", "csbm", *size) * 1e6
    seconds = in_fresh_process("--of", "µs", "csbm", *size)
    memory = in_fresh_process("--of", "bytes", "csbm", *size)
    cells = [f"{nodes:,}", f"{degree:g}", f"{pairs:,.0f}", f"{seconds:.3f}", f"{memory:,.0f}"]
    if nodes > QUADRATIC:
        return [*cells, "", ""]
    coins = in_fresh_process("--of", "µs", "sbm", *size)
    return [*cells, f"{coins:.3f}", f"{coins / seconds:.0f}"]


def measured(what: str, form: str, nodes: int, degree: float) -> int:
    """Microseconds, bytes, or number of pairs of one graph."""

    def draw() -> Graph:
        return FORMS[form](num_nodes=nodes, degree=degree)

    if what == "bytes":
        return peak_bytes(draw, torch.device("cpu"))
    began = time.process_time()
    graph = draw()
    seconds = time.process_time() - began
    return graph.edges.shape[1] // 2 if what == "pairs" else round(1e6 * seconds)


if __name__ == "__main__":
    run_script(main)
