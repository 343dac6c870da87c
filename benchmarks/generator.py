"""Seconds and memory that `data=sbm` takes, beside drawing every pair by its own coin.

    python benchmarks/generator.py
    python benchmarks/generator.py --nodes 1000000 --degrees 10 20

A row is a fresh process; memory is the largest resident set without that of the imports. The
quadratic form, that of older runs, is measured up to 30,000 nodes.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

from measure import text

from oversmoothing.data.graphs import csbm, sbm
from oversmoothing.launch.script import run_script

QUADRATIC = 30_000  # nodes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sizes = [1_000, 10_000, 30_000, 100_000, 1_000_000]
    parser.add_argument("--nodes", nargs="*", type=int, default=sizes)
    parser.add_argument("--degrees", nargs="*", type=float, default=[10.0, 20.0])
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # form, nodes, degree
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]), float(options.one[2]))))
        return 0
    rows = [["nodes", "edges", "seconds", "MB", "coins: seconds", "ratio"]]
    for nodes in options.nodes:
        for degree in options.degrees:
            edges, seconds, memory = in_process("csbm", nodes, degree)
            row = [f"{nodes:,}", f"{edges:,}", f"{seconds:.3f}", f"{memory:,.0f}"]
            if nodes <= QUADRATIC:
                coins = in_process("sbm", nodes, degree)[1]
                row += [f"{coins:.3f}", f"{coins / seconds:.0f}"]
            rows.append(row + [""] * (len(rows[0]) - len(row)))
    print(text(rows))
    return 0


def in_process(form: str, nodes: int, degree: float) -> list[float]:
    """``measure`` in a fresh process."""
    command = [sys.executable, __file__, "--one", form, str(nodes), str(degree)]
    return json.loads(subprocess.check_output(command))


def measure(form: str, nodes: int, degree: float) -> tuple[int, float, float]:
    """Number of edges, seconds and megabytes of one graph."""
    before, began = peak(), time.perf_counter()
    graph = {"csbm": csbm, "sbm": sbm}[form].generate(num_nodes=nodes, degree=degree)
    return graph.edges.shape[1] // 2, time.perf_counter() - began, peak() - before


def peak() -> float:
    """Largest resident set so far in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


if __name__ == "__main__":
    run_script(main)
