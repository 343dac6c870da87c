"""Runs the missing cells of a table, prints the table, and writes it with its figure.

    oversmoothing table table5 --data cora --methods centered layernorm --columns L=16
    oversmoothing table table5 --plan
    oversmoothing table table5 --draw
    oversmoothing table table5 --publish

Files are written to outputs/, or with --publish to results/ and docs/, as are other tables with the
new runs. Runs with a result in the output folder or a recorded result are skipped. With --fresh,
recorded results are not used. A recorded seed keeps its result.
"""

import sys
from argparse import Namespace
from pathlib import Path

from omegaconf import DictConfig

from oversmoothing.lab.launch.command import configs, run_all, same_runs
from oversmoothing.lab.launch.script import (
    OUTPUTS,
    Parser,
    add_cells,
    as_override,
    records_of,
    split_words,
    whole,
)
from oversmoothing.lab.report.numbers import update
from oversmoothing.lab.report.publish import markdown, publish
from oversmoothing.lab.report.results import (
    Planned,
    collect,
    describe,
    distinct,
    records_beside,
    tables_with,
    write_records,
)
from oversmoothing.lab.report.tables import Cell, load, select
from oversmoothing.lab.report.verdict import judge
from oversmoothing.lab.store.files import alone
from oversmoothing.lab.store.results import counted


def main() -> int:
    options = arguments()
    results = records_of(options.target)
    every = load(results / "expected")
    cells = select(every, options.table)
    narrowed = select(cells, options.table, options.data, options.methods, options.columns)
    path, runs = results / f"{cells[0].table}.jsonl", not (options.plan or options.draw)
    runnable = [cell for cell in cells if cell.runnable]
    same_runs(options.overrides, runnable[0].words if runnable else ())
    if runs:
        print(f"{options.table}: reads the results of {counted(len(cells), 'cell')}", flush=True)
    planned = collect(cells, options.overrides, None if options.fresh else path)
    missing = [p.remainder for p in planned if p.cell in narrowed and p.missing]
    missing = distinct([p for p in missing if options.all or not p.cell.reason])
    if options.plan:
        print(describe(missing, planned, options.overrides))
        return 0
    if runs:
        print(f"{counted(len(missing), 'run')} to do; --plan lists them", flush=True)
    failures = run_all(checked(missing, options.overrides), options.jobs) if runs else []
    paths = written(planned, narrowed, options)
    if options.target != OUTPUTS:
        changed = [] if options.draw else missing
        others = [cell for cell in every if cell.table != cells[0].table]
        for other in tables_with(changed, others, options.overrides, results):
            paths += written(other, [], options)
        paths += update(results)
    print(*dict.fromkeys(paths), sep="\n")
    return 1 if failures else 0


def written(planned: list[Planned], shown: list[Cell], options: Namespace) -> list[Path]:
    """Writes a table, its records and its figure; prints some cells."""
    name = f"{planned[0].cell.table}.jsonl"
    with alone(path := options.target / name):
        records = records_beside(records_of(options.target) / name)
        used = {} if options.fresh and options.target == OUTPUTS else records
        planned = [p.looked_up(used) for p in planned]
        write_records(path, planned)
    entries = judge([p.pair for p in planned])
    if shown:
        print(markdown([entry for entry in entries if entry.cell in shown]))
    return [path, *publish(entries, options.target, options.pdf)]


def checked(missing: list[Planned], overrides: list[str]) -> list[DictConfig]:
    """Returns the checked configs of the missing runs."""
    return [config for p in missing for config in configs([*p.cell.words, *overrides])]


def arguments() -> Namespace:
    parser = Parser(__doc__, overrides=True)
    add_cells(parser)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--plan", action="store_true", help="list what is missing, run nothing")
    either.add_argument("--draw", action="store_true", help="draw what there is, run nothing")
    parser.add_argument("--fresh", action="store_true", help="do not count committed results")
    parser.add_argument("--all", action="store_true", help="also what the table marks as not run")
    parser.add_argument("--pdf", action="store_true", help="also save the figure as PDF")
    parser.add_argument("--jobs", type=whole(), default=1, help="processes side by side")
    parser.add_argument("--config-dir", help="adds a folder of configs, as for train.py")
    words, overrides = split_words(sys.argv[1:])
    options = parser.parse_args(words)
    options.overrides = overrides + as_override(options.config_dir)
    return options
