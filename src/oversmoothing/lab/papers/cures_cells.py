"""The cells of a study of methods by depth: their records, the choice of a candidate, their runs.

A cell is a method on a graph, in a network of one depth. Validation accuracy over the tuning seeds
chooses one of its candidates, which is run with all seeds.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig

from oversmoothing.errors import InputError, Problems, meant
from oversmoothing.lab.drawing.files import write_csv
from oversmoothing.lab.launch.check import all_problems
from oversmoothing.lab.launch.command import run_all
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import known_result
from oversmoothing.lab.papers import RESULTS
from oversmoothing.lab.report.tables import Cell, load
from oversmoothing.lab.report.verdict import Measured
from oversmoothing.lab.store.files import alone, read_csv
from oversmoothing.lab.store.identity import run_id

BASELINE = "none"


class Place(NamedTuple):
    """Where a cell of the study stands: a method on a graph, in a network of one depth."""

    graph: str
    network: str
    layers: int
    method: str

    def command(self) -> str:
        """Returns the command that measures the cell."""
        return (
            f"oversmoothing figure cures --graphs {self.graph} --networks {self.network} "
            f"--layers {self.layers} --methods {self.method}"
        )


class Record(NamedTuple):
    """One seed of one candidate of a cell; accuracies, or ROC AUC, in percent at the best epoch."""

    graph: str
    network: str
    layers: int
    method: str
    candidate: str
    seed: int
    val_accuracy: float
    test_accuracy: float
    epoch: int
    run: str

    @property
    def place(self) -> Place:
        return Place(*self[:4])


Study = Mapping[Place, Cell]
Found = Mapping[Place, tuple[str, Measured]]  # the chosen candidate and its test accuracy


@cache
def study() -> Study:
    """Returns the cells by place: by graph, then network, depth and method, as in the tables."""
    every = load(RESULTS / "expected", chosen=True)
    cells = [cell for cell in every if "cures" in (cell.about.name, cell.about.of)]
    found = {Place(c.block, c.reading, int(c.column[2:]), c.key): c for c in cells}
    orders = [[*dict.fromkeys(names)] for names in zip(*found)]
    ordered = sorted(found, key=lambda place: [o.index(name) for o, name in zip(orders, place)])
    return {place: found[place] for place in ordered}


def select(whole: Study, **wanted: Sequence[str | int]) -> list[Place]:
    """Selects the places with these names (``graph``, ``network``, …); without names, all.

    Raises:
        InputError: a name that the study does not have.
    """
    for field, names in wanted.items():
        known = {str(getattr(place, field)) for place in whole}
        for name in names:
            if str(name) not in known:
                raise InputError(f"cures: no {field} {name!r}; {meant(str(name), sorted(known))}")
    return [p for p in whole if all(not v or getattr(p, f) in v for f, v in wanted.items())]


def config_of(cell: Cell, candidate: Sequence[str], extra: Sequence[str] = ()) -> DictConfig:
    """Composes the config of a candidate of a cell."""
    return compose_config([*cell.words, *candidate, *extra])


def seeds_of(cell: Cell) -> list[int]:
    """Returns the seeds of the chosen candidate."""
    return _seeds((f"experiment={cell.experiment}", *(w for w in cell.overrides if "seeds" in w)))


@cache
def _seeds(words: tuple[str, ...]) -> list[int]:
    return list(compose_config([*words]).seeds)


def read(path: Path) -> list[Record]:
    """Reads the records; empty if there is no file."""
    kinds = Record.__annotations__
    lines = read_csv(path) if path.exists() else ()
    return [Record(**{key: kinds[key](line[key]) for key in kinds}) for line in lines]


def add(path: Path, records: Sequence[Record], instead: bool = False) -> None:
    """Adds records to a file, sorted; other processes may add theirs at the same time.

    Args:
        instead: whether they replace all records of their cells.
    """
    places = {record.place for record in records if instead}
    with alone(path):
        kept = (record for record in read(path) if record.place not in places)
        write_csv(path, Record._fields, sorted({*kept, *records}))


def by_candidate(records: Iterable[Record]) -> dict[Place, dict[str, list[Record]]]:
    """Groups records: place -> candidate -> records."""
    found: dict[Place, dict[str, list[Record]]] = {}
    for record in records:
        found.setdefault(record.place, {}).setdefault(record.candidate, []).append(record)
    return found


def choose(cell: Cell, runs: Mapping[str, Sequence[Record]]) -> tuple[str, ...] | None:
    """Returns the candidate with the highest mean validation accuracy over the tuning seeds.

    If several are equal, it is the first. It is None until all candidates have all seeds.

    Args:
        runs: records by candidate.
    """
    means = {}
    for words in cell.candidates:
        found = {r.seed: r.val_accuracy for r in runs.get(" ".join(words), ())}
        if not found.keys() >= set(cell.about.tuning_seeds):
            return None
        means[words] = statistics.fmean(found[seed] for seed in cell.about.tuning_seeds)
    return max(means, key=means.__getitem__)


def measure(whole: Study, records: Iterable[Record]) -> Found:
    """Returns the chosen candidates and their test accuracy, for the cells with all seeds."""
    found = {}
    for place, runs in by_candidate(records).items():
        if place not in whole or (words := choose(whole[place], runs)) is None:
            continue
        name, seeds = " ".join(words), seeds_of(whole[place])
        test = {r.seed: r.test_accuracy for r in runs[name] if r.seed in seeds}
        if len(test) == len(seeds):
            found[place] = name, Measured((*test.values(),), runs[name][0].run, 0.0, (*test,))
    return found


def run_cell(
    place: Place, cell: Cell, known: Sequence[Record], extra: Sequence[str]
) -> list[Record]:
    """Runs all candidates with the tuning seeds and the chosen one with all; returns the records.

    Args:
        known: records of the cell; their seeds are not run again. Records of other runs, such as
            those of an earlier version, are ignored.
        extra: overrides that say how to compute, such as ``device=cpu``.

    Raises:
        InputError: data are missing, or runs failed; the error of each run is printed before.
    """
    records = today({place: cell}, known)
    every = [" ".join(words) for words in cell.candidates]
    records += _run(place, cell, every, cell.about.tuning_seeds, records, extra)
    best = choose(cell, by_candidate(records)[place])
    return records + _run(place, cell, [" ".join(best)], seeds_of(cell), records, extra)


def today(whole: Study, known: Sequence[Record]) -> list[Record]:
    """Removes records of runs that are not runs of this version."""
    keys = {(record.place, record.candidate) for record in known if record.place in whole}
    ids = {key: run_id(config_of(whole[key[0]], key[1].split())) for key in keys}
    return [record for record in known if record.run == ids.get((record.place, record.candidate))]


def _run(
    place: Place,
    cell: Cell,
    candidates: Sequence[str],
    seeds: Sequence[int],
    known: Sequence[Record],
    extra: Sequence[str],
) -> list[Record]:
    """Runs candidates with the seeds that have no record, and returns their records."""
    have = {(record.candidate, record.seed) for record in known}
    configs = {}
    for name in candidates:
        if missing := [seed for seed in seeds if (name, seed) not in have]:
            configs[name] = config_of(cell, name.split(), extra)
            configs[name].seeds = missing
    where = ", ".join(map(str, place))
    if problems := [
        line for config in [*configs.values()][:1] for line in all_problems(config, {})
    ]:
        raise Problems([f"{where}: {line}" for line in problems])  # once, not for every candidate
    if failed := run_all([*configs.values()]):
        raise InputError(f"{where}: {len(failed)} of {len(configs)} runs have no result")
    return [
        Record(
            *(*place, name, seed),
            *(round(own[key], 4) for key in (cell.metric.replace("test", "val"), cell.metric)),
            *(own["epoch"], result["id"]),
        )
        for name, config in configs.items()
        for result in [known_result(config)]
        for seed, own in ((seed, result["seeds"][str(seed)]) for seed in config.seeds)
    ]
