"""Committed tables hold what the committed records say."""

from pathlib import Path

import pytest
from guide import ROOT

from oversmoothing.lab.report.publish import markdown, to_csv
from oversmoothing.lab.report.results import collect
from oversmoothing.lab.report.tables import load, select
from oversmoothing.lab.report.verdict import judge

RESULTS = ROOT / "results"
CELLS = load(RESULTS / "expected")
TABLES = [
    name for name in dict.fromkeys(c.table for c in CELLS) if (RESULTS / f"{name}.jsonl").exists()
]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_that_of_the_records(table: str, tmp_path: Path) -> None:
    """After new results: ``oversmoothing table TABLE --draw --publish``."""
    elsewhere = [f"paths.outputs={tmp_path}"]
    found = collect(select(CELLS, table), elsewhere, RESULTS / f"{table}.jsonl")
    entries = judge([planned.pair for planned in found])
    assert (RESULTS / f"tables/{table}.csv").read_text("utf-8") == to_csv(entries)
    assert (RESULTS / f"tables/{table}.md").read_text("utf-8").startswith(markdown(entries))
