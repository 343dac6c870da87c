"""Compares the CPU time of a search in stacks with one run per configuration.

    python benchmarks/search.py --data cora --methods centered --depths 4 16

The configurations are those of Table 6 (results/tuning/table6), with fewer epochs.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import record
from measure import interleaved
from omegaconf import DictConfig

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.report.tables import load, select
from oversmoothing.lab.search.files import Space, read_space, words_of
from oversmoothing.lab.search.search import Search, work_of

RUNGS, EPOCHS, SEEDS = [5, 10], 30, [100, 101, 102]
MEASURE = "CPU s"


def main() -> None:
    given = arguments()
    columns = [f"L={depth}" for depth in given.depths]
    cells = load(record.RESULTS / "expected", tuned=False)
    with TemporaryDirectory() as folder:
        for cell in select(cells, "table6", given.data, given.methods, columns):
            words = [f"experiment={cell.experiment}", *cell.overrides]
            space = space_of(given.trials)
            configs = drawn(space, cell.key, words, folder)
            place = f"{cell.block}, {cell.row}, {cell.column}, {len(configs)} configurations"
            record.save(measured(configs, space, cell.key, place, given.rounds))


def space_of(trials: int) -> Space:
    """The space of Table 6 with fewer configurations, seeds and epochs."""
    space = read_space(record.RESULTS / "tuning/table6/space.yaml")
    return space.model_copy(update={"trials": trials, "rungs": RUNGS, "seeds": SEEDS})


def drawn(space: Space, row: str, words: list[str], folder: str) -> list[DictConfig]:
    """Configurations of a search, all of them with the same number of epochs."""
    fixed = [*space.overrides, "threads=1", "logger=none", f"paths.outputs={folder}"]
    every = [words_of(settings) for settings in space.drawn(row)]
    return [compose_config([*words, *fixed, *own, f"trainer.epochs={EPOCHS}"]) for own in every]


def measured(
    configs: list[DictConfig], space: Space, row: str, place: str, rounds: int
) -> list[record.Row]:
    """Compares stacks with single runs, without and with halving."""
    work, whole = work_of(configs), space.model_copy(update={"rungs": []})
    steps = {
        "whole": lambda: Search(work, whole, row).run(),
        "halved": lambda: Search(work, space, row).run(),
        "alone": partial(one_by_one, configs, [[seed] for seed in SEEDS]),
        "seeds": partial(one_by_one, configs, [SEEDS]),
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
