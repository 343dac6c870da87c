"""Searches for the best settings of a table's cells by validation accuracy.

    oversmoothing tune table6 --data cora --methods centered --columns L=16
    oversmoothing tune table6 --plan
    oversmoothing tune table6 --data cora --publish
    oversmoothing table table6 --data cora --methods centered    # then runs the cells with them

All configurations of a cell are trained together, and their number is halved several times. A
killed search continues with the same command. Trials and settings are written to outputs/tuning;
--publish writes them to results/tuning, where the table reads them. Cells with known settings are
skipped unless space.yaml has changed. --jobs 2 searches two cells in parallel.
"""

import sys
import traceback
from argparse import Namespace
from dataclasses import replace
from functools import partial

from oversmoothing.errors import InputError, Problems, complain, meant
from oversmoothing.lab.launch.command import same_runs
from oversmoothing.lab.launch.script import (
    Parser,
    add_cells,
    as_override,
    records_of,
    split_words,
    whole,
)
from oversmoothing.lab.processes import DIED, in_processes
from oversmoothing.lab.report.tables import load, select
from oversmoothing.lab.search.files import read_space
from oversmoothing.lab.search.search import CellSearch
from oversmoothing.lab.store.run import Busy


def main() -> int:
    options = arguments()
    every = searches_of(options)
    same_runs(options.overrides, every[0].words)
    searches = [own for own in every if not known(own, options)]
    if not searches:
        print("nothing is missing")
        return 0
    check(searches)
    if options.plan:
        print(*(search.name for search in searches), f"{len(searches)} searches", sep="\n")
        return 0
    call = partial(attempt, most=options.batch)
    good = [ended for _, ended in in_processes(call, searches, options.jobs, died)]
    print(*sorted(searches[0].folder.glob("[!.]*.*")), sep="\n")
    return 0 if all(good) else 1


def searches_of(options: Namespace) -> list[CellSearch]:
    """Returns the searches of the cells that the command names.

    Raises:
        InputError: the table or a cell does not exist, or the table has no search space.
    """
    results = records_of(options.target)
    cells = select(load(results / "expected", tuned=False), options.table)
    if (name := cells[0].about.tuned) is None:
        raise InputError(
            f"{options.table}: this table has no search; give it `tuned: <folder with space.yaml>` "
            "in results/expected"
        )
    rows = {cell.key for cell in cells}
    cells = select(cells, options.table, options.data, options.methods, options.columns)
    folder = results / name
    space, extra = read_space(folder / "space.yaml"), tuple(options.overrides)
    if unknown := sorted(space.methods.keys() - rows):
        raise InputError(
            f"{folder}/space.yaml: methods: {unknown[0]} is not a row of the table; "
            f"{meant(unknown[0], rows)}"
        )
    return [
        CellSearch(
            *(c.table, c.block, c.key, c.column),
            *(c.words, space, options.target / name, extra),
        )
        for c in cells
    ]


def known(search: CellSearch, options: Namespace) -> bool:
    """Whether the settings of a cell are recorded, or found where this command writes them."""
    recorded = records_of(options.target) / search.folder.relative_to(options.target)
    return search.done or replace(search, folder=recorded).done


def check(searches: list[CellSearch]) -> None:
    """Checks the configurations of a cell of every row, block and column, before any work.

    Raises:
        InputError: mistakes in overrides, settings or data; each line names the cell.
    """
    keys = ("row", "block", "column")
    first = {(key, getattr(s, key)): s for s in reversed(searches) for key in keys}
    for search in {s.name: s for s in first.values()}.values():
        try:
            search.configs()
        except InputError as error:
            raise Problems([f"{search.name}: {line}" for line in error.lines]) from error


def attempt(search: CellSearch, most: int | None) -> bool:
    """Runs a search; errors are printed and do not stop the other searches."""
    try:
        said = search.run(most)
    except Busy as other:
        complain(f"{other}: left out; give the command again when it has ended")
        return False
    except InputError as error:
        complain(*(f"{search.name}: {line}" for line in error.lines))
        return False
    except Exception as error:
        traceback.print_exc()
        complain(f"{search.name}: {type(error).__name__}, see above")
        return False
    print(said, flush=True)
    return True


def died(search: CellSearch) -> bool:
    """Reports a search whose process died."""
    complain(f"{search.name}: {DIED}")
    return False


def arguments() -> Namespace:
    parser = Parser(__doc__, overrides=True)
    add_cells(parser)
    parser.add_argument("--plan", action="store_true", help="list what is missing, search nothing")
    parser.add_argument("--jobs", type=whole(), default=1, help="searches side by side")
    parser.add_argument("--config-dir", help="adds a folder of configs, as for train.py")
    parser.add_argument("--batch", type=whole(), help="networks trained together, at most")
    words, overrides = split_words(sys.argv[1:])
    options = parser.parse_args(words)
    options.overrides = overrides + as_override(options.config_dir)
    return options
