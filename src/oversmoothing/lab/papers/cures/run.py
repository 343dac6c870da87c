"""Runs the candidates of a cell, chooses one on validation nodes, and runs all seeds of it."""

from collections.abc import Sequence

from oversmoothing.errors import InputError
from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.launch.attempts import attempt
from oversmoothing.lab.papers.cures.records import Record, chosen
from oversmoothing.lab.papers.cures.study import Cell, Study
from oversmoothing.lab.store.identity import run_id


def run_cell(
    study: Study, cell: Cell, known: Sequence[Record], extra: Sequence[str]
) -> list[Record]:
    """Measures a cell and returns its records.

    Args:
        known: records of the cell; a run with all seeds in them is skipped. Records of other runs,
            such as those of an earlier version, are ignored.
        extra: overrides that say how to compute, such as ``device=cpu``.

    Raises:
        InputError: a run failed; its error is printed before.
    """
    records = today(study, known)
    for words in study.candidates(cell):
        records += _run(study, cell, words, study.tuning, records, extra)
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.candidate, []).append(record)
    best = next(w for w in study.candidates(cell) if " ".join(w) == chosen(study, cell, runs))
    return records + _run(study, cell, best, study.seeds, records, extra)


def today(study: Study, known: Sequence[Record]) -> list[Record]:
    """Removes records of runs that are not runs of this version."""
    keys = {(record.cell, record.candidate) for record in known}
    ids = {key: run_id(compose_config(study.words(key[0], key[1].split()))) for key in keys}
    return [record for record in known if record.run == ids[record.cell, record.candidate]]


def _run(
    study: Study,
    cell: Cell,
    words: Sequence[str],
    seeds: Sequence[int],
    known: Sequence[Record],
    extra: Sequence[str],
) -> list[Record]:
    """Runs a candidate with the seeds that have no record, and returns their records."""
    from oversmoothing.lab.launch.execute import execute  # imports torch

    name = " ".join(words)
    wanted = f"seeds=[{','.join(map(str, seeds))}]"
    config = compose_config([*study.words(cell, words), wanted, *extra])
    have = {r.seed for r in known if (r.candidate, r.run) == (name, run_id(config))}
    if have >= set(seeds):
        return []
    if failed := attempt(config, wait=True):
        raise InputError(f"{cell}: {failed}")
    result = execute(config)
    return [
        Record(
            *cell,
            name,
            seed,
            *(round(result["seeds"][str(seed)][k], 4) for k in ("val_accuracy", "test_accuracy")),
            result["seeds"][str(seed)]["epoch"],
            result["id"],
        )
        for seed in seeds
        if seed not in have
    ]
