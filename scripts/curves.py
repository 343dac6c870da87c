"""Draws oversmoothing by block, from the recorded runs of tables by depth.

python scripts/curves.py
python scripts/curves.py cls_depth
"""

import argparse
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.launch.script import run_script
from oversmoothing.papers.depth_curves import write_curves
from oversmoothing.report.collect import collect
from oversmoothing.report.expected import load, select

RESULTS = Path(__file__).parents[1] / "results"
TABLES = ["cls_pretrained", "cls_depth", "text_depth", "text_rates"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", default=TABLES, help=f"default: {' '.join(TABLES)}")
    options = parser.parse_args()
    every = load(RESULTS / "expected")
    for name in options.tables:
        planned = collect(select(every, name), [], RESULTS / f"{name}.jsonl")
        one_a_run = {(p.cell.row, p.cell.column): p for p in planned}
        if name == "cls_pretrained":  # its columns are metrics of one run
            one_a_run = {row: p for (row, _), p in one_a_run.items()}
        try:
            stem = RESULTS / "figures" / f"{name}_curves"
            print(*write_curves(list(one_a_run.values()), stem, name != "cls_pretrained"), sep="\n")
        except InputError as error:
            print(error)
    return 0


if __name__ == "__main__":
    run_script(main)
