"""Committed tables hold what the committed records say."""

from pathlib import Path

import pytest
from guide import ROOT

from oversmoothing.report.collect import collect
from oversmoothing.report.expected import load, select
from oversmoothing.report.grid import judge
from oversmoothing.report.publish import to_csv

RESULTS = ROOT / "results"
CELLS = load(RESULTS / "expected")
TABLES = [
    name for name in dict.fromkeys(c.table for c in CELLS) if (RESULTS / f"{name}.jsonl").exists()
]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_that_of_the_records(table: str, tmp_path: Path) -> None:
    """After new results: ``python scripts/table.py TABLE --draw``."""
    elsewhere = [f"paths.outputs={tmp_path}"]
    found = collect(select(CELLS, table), elsewhere, RESULTS / f"{table}.jsonl")
    written = to_csv(judge([planned.pair for planned in found]))
    assert (RESULTS / f"tables/{table}.csv").read_text("utf-8") == written
