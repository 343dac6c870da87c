"""The command of the study, which runs its cells and writes its files."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.flags import whole
from oversmoothing.lab.launch.overrides import same_runs
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.papers.cures import records
from oversmoothing.lab.papers.cures.records import Record
from oversmoothing.lab.papers.cures.run import run_cell, today
from oversmoothing.lab.papers.cures.study import Cell, Study, select, study
from oversmoothing.lab.papers.cures.write import write_all
from oversmoothing.lab.processes import DIED, in_processes

Task = tuple[Study, Cell, list[Record], list[str]]  # what measures a cell: what ``run_cell`` takes


def main(argv: list[str]) -> int:
    """Runs the missing cells, then writes CSV, table and figure; returns 1 if a run failed."""
    options = arguments(argv)
    same_runs(options.overrides)
    whole = study()
    names = (options.graphs, options.networks, options.layers, options.methods)
    wanted = select(whole.cells(), *names)
    known = records.read(RESULTS / "cures.csv")
    missing = _missing(whole, wanted, today(whole, known) if options.earlier else known)
    if options.plan:
        print(*(cell.command for cell in missing), f"{len(missing)} cells are missing", sep="\n")
        return 0
    path = records.write(options.target / "cures.csv", known)
    failed = 0 if options.draw else _run(whole, missing, known, path, options)
    print(path, *write_all(whole, records.read(path), options.target, options.pdf), sep="\n")
    return int(failed > 0)


def _missing(whole: Study, wanted: Sequence[Cell], known: Sequence[Record]) -> list[Cell]:
    """Returns the cells without a measurement, the smallest first."""
    done = records.measured(whole, known)
    return sorted((cell for cell in wanted if cell not in done), key=whole.cost)


def _run(
    whole: Study, missing: Sequence[Cell], known: list[Record], path: Path, options: Namespace
) -> int:
    """Runs cells and writes the CSV after each; returns how many failed."""
    failed, every = 0, set(known)
    for done, outcome in enumerate(_outcomes(whole, missing, known, options), start=1):
        if isinstance(outcome, str):
            failed += 1
            print(f"error: {outcome}", file=sys.stderr, flush=True)
            continue
        every = {record for record in every if record.cell != outcome[0].cell} | set(outcome)
        records.write(path, every)
        print(f"cell {done} of {len(missing)}: {', '.join(map(str, outcome[0].cell))}", flush=True)
    return failed


def _outcomes(
    whole: Study, missing: Sequence[Cell], known: Sequence[Record], options: Namespace
) -> Iterator[list[Record] | str]:
    """Yields the records of each cell, or the line of its error."""
    found = records.by_cell(known)
    tasks = [
        (whole, cell, [r for of in found.get(cell, {}).values() for r in of], options.overrides)
        for cell in missing
    ]
    if options.jobs == 1:
        yield from map(_outcome, tasks)
    else:
        yield from (found for _, found in in_processes(_outcome, tasks, options.jobs, _died))


def _died(task: Task) -> str:
    return f"{', '.join(map(str, task[1]))}: {DIED}"


def _outcome(task: Task) -> list[Record] | str:
    try:
        return run_cell(*task)
    except InputError as error:
        return str(error)


def arguments(argv: list[str]) -> Namespace:
    """Reads the command line."""
    parser = figure_parser(__package__, __doc__)
    parser.add_argument("--graphs", nargs="*", default=[], help="only these graphs")
    parser.add_argument("--networks", nargs="*", default=[], help="only these networks")
    parser.add_argument("--layers", nargs="*", type=whole(), default=[], help="only these depths")
    parser.add_argument("--methods", nargs="*", default=[], help="only these methods")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--plan", action="store_true", help="list the missing cells, run nothing")
    either.add_argument("--draw", action="store_true", help="write table and figure, run nothing")
    parser.add_argument("--earlier", action="store_true", help="repeat runs of earlier versions")
    parser.add_argument("--jobs", type=whole(), default=1, help="processes side by side")
    parser.add_argument("overrides", nargs="*", help="after --: overrides for all runs")
    return parser.parse_args(argv)
