"""Compares seconds per training step of the methods of `make cures` with those of no method.

    python benchmarks/cures.py
    python benchmarks/cures.py --graph Chameleon --layers 8 --methods none GCNII

A step trains all seeds of the study. The methods take turns.
"""

import argparse
import tempfile
import time
from pathlib import Path

import record
from measure import Step, interleaved

from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.launch.start import Start
from oversmoothing.lab.papers.cures import BASELINE, Place, config_of, seeds_of, study
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes.loop import FullBatchLoop


def main() -> int:
    options = arguments()
    for layers in options.layers:
        cells = [Place(options.graph, options.network, layers, m) for m in options.methods]
        steps = {cell.method: step(cell) for cell in cells}
        seconds = interleaved(steps, options.rounds, time.process_time)
        rows = [
            record.row(
                f"{cell.network}, {cell.graph}, L = {layers}: {cell.method}",
                "CPU s per training step of all seeds", seconds[cell.method],
                peer=BASELINE, theirs=seconds[BASELINE], overhead=True,
            )
            for cell in cells
        ]  # fmt: skip
        record.save(rows)
    return 0


def step(place: Place) -> Step:
    """Returns a training step of the first candidate of a cell."""
    cell = study()[place]
    config, seeds = config_of(cell, cell.candidates[0]), seeds_of(cell)
    start = Start(config)
    folder = Path(tempfile.mkdtemp())
    recorder = Recorder(folder, seeds, checkpoint_seconds=1e9)
    trainer = start.parts.trainer
    network, data = start.network(seeds), start.parts.data
    loop = FullBatchLoop(network, data, trainer, recorder, False)
    return loop.step


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--graph", default="Cora")
    parser.add_argument("--network", default="GCN")
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 8])
    parser.add_argument(
        "--methods", nargs="+", default=[*dict.fromkeys(place.method for place in study())]
    )
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
