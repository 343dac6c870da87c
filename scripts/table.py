"""Runs the missing cells of a table, then writes the table and its figure.

    python scripts/table.py table5 --data cora --methods centered layernorm --columns L=16
    python scripts/table.py table5 --plan
    python scripts/table.py table5 --draw --latex

Runs with a result in the output folder or a committed result are skipped. With --fresh, only
results in the output folder are used; with --earlier, results of earlier versions are not used.
Other tables with the new runs are written, too. Words after -- are overrides for every run:
`-- device=cpu threads=1`. --config-dir adds a folder of configs, as for train.py.
"""

import argparse
import sys
from pathlib import Path

from omegaconf import DictConfig

from oversmoothing.errors import InputError
from oversmoothing.launch.attempts import run_all
from oversmoothing.launch.command import configs
from oversmoothing.launch.flags import SEED, add_cells, search_path, whole
from oversmoothing.launch.overrides import same_runs
from oversmoothing.launch.script import STOPPED, run_script, split_words
from oversmoothing.report.collect import Planned, collect, write_records
from oversmoothing.report.expected import load, select
from oversmoothing.report.facts import update
from oversmoothing.report.grid import Entry, judge
from oversmoothing.report.latex import write_latex
from oversmoothing.report.plan import describe, distinct, tables_with
from oversmoothing.report.publish import publish
from oversmoothing.report.records import read_records

RESULTS = Path(__file__).parents[1] / "results"
EPILOG = "Words after -- are overrides for every run, such as -- device=cpu threads=1."


def main() -> int:
    options = arguments()
    same_runs(options.overrides)
    every = load(options.results / "expected")
    cells = select(every, options.table)
    narrowed = select(cells, options.table, options.data, options.methods, options.columns)
    path = options.results / f"{cells[0].table}.jsonl"
    planned = collect(cells, options.overrides, None if options.fresh else path)
    wanted = of_seeds([p for p in planned if p.cell in narrowed], options.seeds)
    missing = [p.remainder for p in wanted if p.missing or (options.earlier and p.earlier)]
    missing = distinct([p for p in missing if options.all or not p.cell.reason])
    if options.plan:
        print(describe(missing, planned, options.overrides))
        return 0
    failures = [] if options.draw else run_all(checked(missing, options.overrides), options.jobs)
    entries, paths = written(planned, options)
    if not options.draw:
        others = [cell for cell in every if cell.table != cells[0].table]
        for other in tables_with(missing, others, options.overrides, options.results):
            paths += written(other, options)[1]
    print(*dict.fromkeys(paths + update(options.results)), sep="\n")
    if options.latex:
        print(write_latex(entries, options.out))
    return 1 if failures else 0


def written(planned: list[Planned], options: argparse.Namespace) -> tuple[list[Entry], list[Path]]:
    """Records the results of a table and draws it; returns its entries and the files."""
    path = options.results / f"{planned[0].cell.table}.jsonl"
    write_records(path, [p.looked_up() for p in planned])
    records = read_records(path)
    entries = judge([p.looked_up(records).pair for p in planned])
    return entries, publish(entries, options.results, options.pdf)


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
    words = [[f"experiment={p.cell.experiment}", *p.cell.overrides, *overrides] for p in missing]
    return [config for line in words for config in configs(line)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=EPILOG)
    add_cells(parser, RESULTS)
    parser.add_argument("--seeds", type=SEED, nargs="*", default=[], help="only these seeds")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--plan", action="store_true", help="list what is missing, run nothing")
    either.add_argument("--draw", action="store_true", help="draw what there is, run nothing")
    parser.add_argument("--fresh", action="store_true", help="do not count committed results")
    parser.add_argument("--earlier", action="store_true", help="repeat runs of earlier versions")
    parser.add_argument("--all", action="store_true", help="also what the table marks as not run")
    parser.add_argument("--latex", action="store_true", help="also write the table as LaTeX")
    parser.add_argument("--out", type=Path, default=Path("outputs/tables"), help="folder of LaTeX")
    parser.add_argument("--pdf", action="store_true", help="also save the figure as PDF")
    parser.add_argument("--jobs", type=whole(), default=1, help="processes side by side")
    parser.add_argument("--config-dir", help="adds a folder of configs, as for train.py")
    words, overrides = split_words(sys.argv[1:])
    options = parser.parse_args(words)
    options.overrides = overrides + search_path(options.config_dir)
    return options


if __name__ == "__main__":
    run_script(main, STOPPED)
