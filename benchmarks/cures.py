"""Seconds per training step of the methods that `make cures` compares, beside none.

    python benchmarks/cures.py
    python benchmarks/cures.py --graph Chameleon --layers 8 --methods none GCNII

A step trains all five seeds. The methods take turns; the CSV holds the median over rounds of the
ratio to the step of none next to it.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from measure import Step, interleaved, median_ratio, text

from oversmoothing.drawing.files import write_csv
from oversmoothing.launch.command import compose_config
from oversmoothing.launch.script import run_script
from oversmoothing.launch.start import Start
from oversmoothing.papers import RESULTS
from oversmoothing.papers.cures.compare import BASELINE
from oversmoothing.papers.cures.study import Cell, study
from oversmoothing.report.markers import show_in_pages
from oversmoothing.store.recorder import Recorder


def main() -> int:
    options = arguments()
    rows = []
    for layers in options.layers:
        cells = [Cell(options.graph, options.network, layers, m) for m in options.methods]
        seconds = interleaved({cell.method: step(cell) for cell in cells}, options.rounds)
        for cell in cells:
            ratio = median_ratio(seconds[cell.method], seconds[BASELINE])
            median = statistics.median(seconds[cell.method])
            rows.append([*cell, f"{median:.4f}", f"{ratio:.2f}"])
    head = ["graph", "network", "layers", "method", "seconds", "ratio"]
    print(text([head, *([*map(str, row)] for row in rows)]))
    print(write_csv(RESULTS / "cures_time.csv", head, rows))
    print(*show_in_pages(RESULTS, "cures_time", page(options, rows)), sep="\n")
    return 0


def page(options: argparse.Namespace, rows: list[list[object]]) -> str:
    """The ratios as a table of methods × depths, for the guide."""
    ratios = {(row[3], row[2]): row[-1] for row in rows}
    columns = [f"L = {layers}" for layers in options.layers]
    lines = [[f"{options.network}, {options.graph}", *columns], ["---"] * (len(columns) + 1)]
    lines += [[m, *(f"{ratios[m, d]}×" for d in options.layers)] for m in options.methods]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def step(cell: Cell) -> Step:
    """Returns a training step of the first candidate of a cell."""
    whole = study()
    config = compose_config(whole.words(cell, whole.candidates(cell)[0]))
    start = Start(config)
    folder = Path(tempfile.mkdtemp())
    recorder = Recorder(folder, whole.seeds, checkpoint_seconds=1e9)
    trainer = start.parts.trainer
    network, data = start.network(whole.seeds), start.parts.data
    loop = trainer.loop(network, data, trainer, recorder, False)
    return loop.step


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--graph", default="Cora")
    parser.add_argument("--network", default="GCN")
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--methods", nargs="+", default=[*study().methods])
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
