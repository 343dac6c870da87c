"""Compares the CPU time of a search in batches with one run per configuration.

    python benchmarks/search.py --data cora --methods centered --depths 4 16

If there are enough batches, it also compares the wall time of batches side by side with batches one
after the other, each on all threads. The configurations are those of Table 6
(results/tuning/table6), with fewer epochs.
"""

import argparse
import os
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import record
from measure import interleaved
from omegaconf import DictConfig

from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.launch.execute import execute
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.report.tables import load, select
from oversmoothing.lab.search.cell import work_of
from oversmoothing.lab.search.halving import Search
from oversmoothing.lab.search.side_by_side import threads, workers
from oversmoothing.lab.search.space import read_space

RUNGS, EPOCHS, SEEDS = [5, 10], 30, [100, 101, 102]
MEASURE = "CPU s"


def main() -> None:
    given = arguments()
    columns = [f"L={depth}" for depth in given.depths]
    cells = load(record.RESULTS / "expected", tuned=False)
    with TemporaryDirectory() as folder:
        for cell in select(cells, "table6", given.data, given.methods, columns):
            words = [f"experiment={cell.experiment}", *cell.overrides]
            configs = drawn(cell.key, words, given.trials, folder)
            place = f"{cell.block}, {cell.row}, {cell.column}, {len(configs)} configurations"
            own = measured(configs, place, given.rounds) + in_threads(configs, place, given.rounds)
            record.save(own)


def drawn(row: str, words: list[str], trials: int, folder: str) -> list[DictConfig]:
    """Configurations of a search, all of them with the same number of epochs."""
    space = read_space(record.RESULTS / "tuning/table6/space.yaml")
    fixed = [*space.overrides, "threads=1", "logger=none", f"paths.outputs={folder}"]
    own = space.drawn(row)[1 : trials + 1]
    return [compose_config([*words, *fixed, *o, f"trainer.epochs={EPOCHS}"]) for o in own]


def measured(configs: list[DictConfig], place: str, rounds: int) -> list[record.Row]:
    """Compares batches with single runs, without and with halving."""
    work, seeds = work_of(configs), SEEDS
    steps = {
        "whole": lambda: Search(work, seeds, []).run(),
        "halved": lambda: Search(work, seeds, RUNGS).run(),
        "alone": partial(one_by_one, configs, [[seed] for seed in seeds]),
        "seeds": partial(one_by_one, configs, [seeds]),
    }
    seconds = interleaved(steps, rounds, time.process_time)
    number = f"{place} of {EPOCHS} epochs and 3 seeds"
    pairs = [
        ("whole", "one run for each configuration and seed", "alone", None),
        ("whole", "one run for each configuration", "seeds", None),
        ("halved", "one run for each configuration and seed", "alone", 2.0),
    ]
    return [
        record.row(
            f"{number}{', halved twice' if ours == 'halved' else ''}",
            MEASURE,
            seconds[ours],
            peer=peer,
            theirs=seconds[theirs],
            goal=goal,
        )
        for ours, peer, theirs, goal in pairs
    ]


def in_threads(configs: list[DictConfig], place: str, rounds: int) -> list[record.Row]:
    """Compares batches side by side with batches on all threads; nothing with few batches."""
    work, number = work_of(configs), len(os.sched_getaffinity(0))
    with threads(number):
        if workers(work.device, len(Search(work, SEEDS, RUNGS).batches)) == 1:
            return []

    def one_after_the_other() -> None:
        with patch("oversmoothing.lab.search.side_by_side.workers", lambda *_: 1):
            Search(work, SEEDS, RUNGS).run()

    steps = {"ours": lambda: Search(work, SEEDS, RUNGS).run(), "theirs": one_after_the_other}
    with threads(number):
        seconds = interleaved(steps, rounds)
    named = f"{place} of {EPOCHS} epochs and 3 seeds, halved twice"
    peer = f"one batch at a time on {number} threads"
    return [record.row(named, "s", seconds["ours"], peer=peer, theirs=seconds["theirs"])]


def one_by_one(configs: list[DictConfig], groups: list[list[int]]) -> None:
    """Runs all configurations as a sweep does, each with some seeds at a time."""
    for config in configs:
        for seeds in groups:
            own = config.copy()
            own.seeds = seeds
            with TemporaryDirectory(dir=config.paths.outputs) as folder:
                own.paths.cache, own.paths.outputs = str(Path(config.paths.outputs) / "c"), folder
                execute(own)


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--data", nargs="+", default=["cora"])
    parser.add_argument("--methods", nargs="+", default=["centered"])
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 16])
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
