"""Runs the missing cells of a table, prints the table, and writes it with its figure.

    oversmoothing table table5 --data cora --methods centered layernorm --columns L=16
    oversmoothing table table5 --plan
    oversmoothing table table5 --draw
    oversmoothing table table5 --publish

Files are written to outputs/, or with --publish to results/ and docs/, as are other tables with the
new runs. Runs with a result in the output folder or a recorded result are skipped. With --fresh,
recorded results are not used; with --earlier, runs of earlier versions are repeated.

A recorded seed keeps its result. If the output folder has another one, both are printed; --replace
takes that of the output folder for the cells that are named.
"""

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import configs, run_all, same_runs
from oversmoothing.lab.launch.execute import finished
from oversmoothing.lab.launch.script import (
    OUTPUTS,
    SEED,
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
from oversmoothing.lab.report.verdict import Entry, judge
from oversmoothing.lab.store.files import alone
from oversmoothing.lab.store.identity import run_id


def main() -> int:
    options = arguments()
    results = records_of(options.target)
    every = load(results / "expected")
    cells = select(every, options.table)
    narrowed = select(cells, options.table, options.data, options.methods, options.columns)
    path = results / f"{cells[0].table}.jsonl"
    runnable = [cell for cell in cells if cell.runnable]
    same_runs(options.overrides, runnable[0].words if runnable else ())
    planned = collect(cells, options.overrides, None if options.fresh else path)
    wanted = of_seeds([p for p in planned if p.cell in narrowed], options.seeds)
    missing = [p.remainder for p in wanted if p.missing or again(p, options)]
    missing = distinct([p for p in missing if options.all or not p.cell.reason])
    if options.plan:
        print(describe(missing, planned, options.overrides))
        return 0
    failures = [] if options.draw else run_all(checked(missing, options.overrides), options.jobs)
    options.replaced = {run_id(p.config) for p in wanted if options.replace and p.config}
    paths = written(planned, narrowed, options)
    if options.target != OUTPUTS:
        changed = wanted if options.replace else [] if options.draw else missing
        others = [cell for cell in every if cell.table != cells[0].table]
        for other in tables_with(changed, others, options.overrides, results):
            paths += written(other, [], options)
        paths += update(results)
    print(*dict.fromkeys(paths), sep="\n")
    return 1 if failures else 0


def written(planned: list[Planned], shown: list[Cell], options: Namespace) -> list[Path]:
    """Writes a table, its records and its figure; prints some cells, and other values for seeds."""
    name = f"{planned[0].cell.table}.jsonl"
    with alone(path := options.target / name):
        records = records_beside(records_of(options.target) / name)
        used = {} if options.fresh and options.target == OUTPUTS else records
        planned = [
            p.looked_up(used, p.config is not None and run_id(p.config) in options.replaced)
            for p in planned
        ]
        write_records(path, planned)
    entries = judge([p.pair for p in planned])
    paths = [path, *publish(entries, options.target, options.pdf)]
    if shown:
        beside = zip(entries, planned)
        print(markdown([_with_seeds(e, p) for e, p in beside if e.cell in shown]))
    for p in planned:
        if (not shown or p.cell in shown) and (line := p.beside(records)):
            print(line)
    return paths


def _with_seeds(entry: Entry, p: Planned) -> Entry:
    return replace(entry, so_far=p.so_far, seeds=len(p.config.seeds)) if p.config else entry


def again(p: Planned, options: Namespace) -> bool:
    """Whether --earlier repeats a run whose result is of an earlier version."""
    return options.earlier and p.earlier and not finished(p.config)


def of_seeds(planned: list[Planned], seeds: list[int]) -> list[Planned]:
    """Restricts the plan to some seeds; refuses seeds that no cell has."""
    known = sorted({seed for p in planned if p.config for seed in p.config.seeds})
    if unknown := [seed for seed in seeds if seed not in known]:
        raise InputError(
            f"--seeds {unknown[0]}: expected seeds of these cells, {', '.join(map(str, known))}"
        )
    return [p.of_seeds(seeds) for p in planned]


def checked(missing: list[Planned], overrides: list[str]) -> list[DictConfig]:
    """Returns the checked configs of the missing runs."""
    return [config for p in missing for config in configs([*p.cell.words, *overrides])]


def arguments() -> Namespace:
    parser = Parser(__doc__, overrides=True)
    add_cells(parser)
    parser.add_argument("--seeds", type=SEED, nargs="+", default=[], help="only these seeds")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--plan", action="store_true", help="list what is missing, run nothing")
    either.add_argument("--draw", action="store_true", help="draw what there is, run nothing")
    parser.add_argument("--fresh", action="store_true", help="do not count committed results")
    parser.add_argument("--earlier", action="store_true", help="repeat runs of earlier versions")
    what = "these cells: results of the output folder replace recorded ones"
    parser.add_argument("--replace", action="store_true", help=what)
    parser.add_argument("--all", action="store_true", help="also what the table marks as not run")
    parser.add_argument("--pdf", action="store_true", help="also save the figure as PDF")
    parser.add_argument("--jobs", type=whole(), default=1, help="processes side by side")
    parser.add_argument("--config-dir", help="adds a folder of configs, as for train.py")
    words, overrides = split_words(sys.argv[1:])
    options = parser.parse_args(words)
    options.overrides = overrides + as_override(options.config_dir)
    return options
