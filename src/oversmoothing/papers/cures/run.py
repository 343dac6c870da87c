"""Runs the candidates of a cell, chooses one on validation nodes, and runs all seeds of it."""

from collections.abc import Sequence

from oversmoothing.errors import InputError
from oversmoothing.launch.attempts import attempt
from oversmoothing.launch.command import compose_config
from oversmoothing.papers.cures.records import Record, chosen
from oversmoothing.papers.cures.study import Cell, Study


def run_cell(
    study: Study, cell: Cell, known: Sequence[Record], extra: Sequence[str]
) -> list[Record]:
    """Measures a cell and returns its records.

    Args:
        known: records of the cell; a run whose seeds are all known is not started.
        extra: overrides that say how to compute, such as ``device=cpu``.

    Raises:
        InputError: a run failed; its error is printed before.
    """
    records = list(known)
    for words in study.candidates(cell):
        records += _run(study, cell, words, study.tuning, records, extra)
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.candidate, []).append(record)
    best = next(w for w in study.candidates(cell) if " ".join(w) == chosen(study, cell, runs))
    return records + _run(study, cell, best, study.seeds, records, extra)


def _run(
    study: Study,
    cell: Cell,
    words: Sequence[str],
    seeds: Sequence[int],
    known: Sequence[Record],
    extra: Sequence[str],
) -> list[Record]:
    """Runs a candidate with the seeds that have no record, and returns their records."""
    from oversmoothing.launch.execute import execute  # imports torch

    name = " ".join(words)
    have = {record.seed for record in known if record.candidate == name}
    if have >= set(seeds):
        return []
    wanted = f"seeds=[{','.join(map(str, seeds))}]"
    config = compose_config([*study.words(cell, words), wanted, *extra])
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
