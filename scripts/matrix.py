"""Tries every aggregator in every kind of backbone; writes the support table into the README.

    python scripts/matrix.py
    python scripts/matrix.py --rounds 9 --columns "DeiT-Ti"

Each cell: parameters, FLOPs of a forward pass (two a multiply-add), time of forward and backward.
Times of one machine and one thread, quietest when nothing else runs.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from oversmoothing.errors import InputError
from oversmoothing.launch.script import run_script
from oversmoothing.papers.support_matrix import COLUMNS, aggregators, measure
from oversmoothing.report.markers import replace_between_markers
from oversmoothing.store.environment import environment
from oversmoothing.store.files import write_text

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "matrix.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="steps timed a pair")
    parser.add_argument("--draw", action="store_true", help="write what there is, measure nothing")
    parser.add_argument("--columns", nargs="*", help="beginnings of titles; default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [c for c in COLUMNS if _chosen(c.title, options.columns)]
    if not chosen:
        titles = "; ".join(column.title for column in COLUMNS)
        raise InputError(f"--columns: none of {options.columns}; expected beginnings of: {titles}")
    known = json.loads(RESULT.read_text())["cells"] if RESULT.exists() else {}
    for column in chosen if not options.draw else []:
        names = tqdm(aggregators(), column.title, disable=None)
        known[column.title] = {name: measure(column, name, options.rounds) for name in names}
        _write(known)
    table = markdown(known)
    replace_between_markers(ROOT / "README.md", "matrix", table)
    print(table)
    return 0


def _write(cells: dict[str, dict[str, dict[str, Any]]]) -> None:
    record = {"command": "python scripts/matrix.py", "env": environment("cpu"), "cells": cells}
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    write_text(RESULT, text)


def _chosen(title: str, beginnings: list[str] | None) -> bool:
    return not beginnings or any(title.startswith(beginning) for beginning in beginnings)


def markdown(cells: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Aggregators down, backbones across, and why a pair is refused."""
    titles = [column.title for column in COLUMNS if column.title in cells]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    reasons: dict[str, int] = {}
    for name in aggregators():
        found = [_cell(cells[title].get(name), reasons) for title in titles]
        lines.append(f"| `{name}` | {' | '.join(found)} |")
    notes = [f"{number}. {reason}" for reason, number in reasons.items()]
    legend = "Parameters · FLOPs of a forward pass (two a multiply-add) · forward and backward, one"
    return "\n".join([*lines, "", f"{legend} CPU thread. – refused:", "", *notes])


def _cell(found: dict[str, Any] | None, reasons: dict[str, int]) -> str:
    if found is None:
        return "not tried"
    if "refused" in found:
        return f"– ({reasons.setdefault(found['refused'], len(reasons) + 1)})"
    millions, giga, ms = found["parameters"] / 1e6, found["flops"] / 1e9, 1e3 * found["seconds"]
    return f"{millions:.3g} M · {giga:.3g} G · {ms:.0f} ms"


if __name__ == "__main__":
    run_script(main)
