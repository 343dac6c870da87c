"""Compares methods against oversmoothing by depth, graph and network: ``make cures``.

    oversmoothing figure cures
    oversmoothing figure cures --graphs Cora --layers 2 8 --methods none residual
    oversmoothing figure cures --plan

The cells are those of the table ``cures`` in ``results/expected``: blocks are graphs, readings
networks, columns depths, and rows methods. In each cell, validation accuracy over the tuning seeds
chooses one candidate, which is run with all seeds.

Cells with results in ``results/cures.csv`` or in the output folder are skipped. The CSV is
written after every cell, table and figure at the end; ``--draw`` writes them after a stop.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from oversmoothing.errors import InputError, complain
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.launch.command import same_runs
from oversmoothing.lab.launch.script import split_words, whole
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.papers.cures_cells import (
    Place,
    Record,
    Study,
    add,
    by_candidate,
    measure,
    read,
    run_cell,
    select,
    study,
)  # fmt: skip
from oversmoothing.lab.papers.cures_figures import draw, draw_depths
from oversmoothing.lab.papers.cures_page import HEAD, asked, compare, page, rows
from oversmoothing.lab.processes import DIED, in_processes
from oversmoothing.lab.report.numbers import update
from oversmoothing.lab.report.tables import Cell
from oversmoothing.lab.store.files import alone, write_text


def main(argv: list[str]) -> int:
    """Runs the missing cells, then writes CSV, table and figure; returns 1 if a run failed."""
    options = arguments(argv)
    whole = study()
    same_runs(options.overrides, next(iter(whole.values())).words)
    names = {name: getattr(options, f"{name}s") for name in ("graph", "network", "method")}
    wanted = select(whole, **names, layers=options.layers)
    path = options.target / "cures.csv"
    known = [*{*read(RESULTS / "cures.csv"), *read(path)}]
    done = measure(whole, known)
    missing = sorted((p for p in wanted if p not in done), key=lambda p: whole[p].cost)
    if options.plan:
        print(*(p.command() for p in missing), f"missing cells: {len(missing)}", sep="\n")
        return 0
    add(path, known)
    failed = 0 if options.draw else _run_cells(whole, missing, path, options)
    with alone(path):  # a study that ends at the same time draws after this one, all cells
        records = read(path)
        written = write_all(whole, records, options.target, options.pdf)
    print(asked(whole, wanted, measure(whole, records)), path, *written, sep="\n")
    return int(failed > 0)


def write_all(whole: Study, records: Sequence[Record], results: Path, pdf: bool) -> list[Path]:
    """Writes tables and figures, and the numbers of written pages; returns the paths."""
    found = measure(whole, records)
    compared, tables, figures = compare(found), results / "tables", results / "figures"
    paths = [write_csv(tables / "cures.csv", HEAD, rows(whole, found, compared))]
    write_text(tables / "cures.md", page(whole, records, found))
    paths.append(tables / "cures.md")
    if compared:
        paths += save(draw(whole, compared), figures / "cures", pdf)
        paths += save(draw_depths(whole, found), figures / "cures_depth", pdf)
    return paths + update(results)


def _run_cells(whole: Study, missing: Sequence[Place], path: Path, options: Namespace) -> int:
    """Runs cells, several side by side, and writes the CSV after each; returns how many failed."""
    failed, known = 0, by_candidate(read(path))
    work = [
        (place, whole[place], sum(known.get(place, {}).values(), []), options.overrides)
        for place in missing
    ]
    if work:
        runs = sum(len(whole[place].candidates) + 1 for place in missing)
        print(f"missing cells: {len(work)}, up to {runs} trainings; --plan lists them")
    each = in_processes(_attempt, work, options.jobs, _died)
    for number, ((place, *_), found) in enumerate(each, start=1):
        if found is None:
            failed += 1
            continue
        add(path, found, instead=True)
        print(f"cell {number} of {len(missing)}: {', '.join(map(str, place))}", flush=True)
    return failed


def _attempt(work: tuple[Place, Cell, list[Record], list[str]]) -> list[Record] | None:
    """Runs a cell and returns its records; prints the error if it fails, and returns None."""
    try:
        return run_cell(*work)
    except InputError as error:
        complain(*error.lines)
        return None


def _died(work: tuple[Place, Cell, list[Record], list[str]]) -> None:
    complain(f"{', '.join(map(str, work[0]))}: {DIED}")


def arguments(argv: list[str]) -> Namespace:
    """Reads the command line."""
    parser = figure_parser(__doc__, overrides=True)
    for name in ("graphs", "networks", "methods"):
        parser.add_argument(f"--{name}", nargs="+", default=[], help=f"only these {name}")
    parser.add_argument("--layers", nargs="+", type=whole(), default=[], help="only these depths")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--plan", action="store_true", help="list the missing cells, run nothing")
    either.add_argument("--draw", action="store_true", help="write table and figure, run nothing")
    parser.add_argument("--jobs", type=whole(), default=1, help="cells side by side")
    words, overrides = split_words(argv)
    options = parser.parse_args(words)
    options.overrides = overrides
    return options
