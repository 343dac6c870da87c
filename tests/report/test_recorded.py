"""Committed tables hold what the committed records say."""

import re
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
    """After new results: ``python scripts/table.py TABLE --draw --publish``."""
    elsewhere = [f"paths.outputs={tmp_path}"]
    found = collect(select(CELLS, table), elsewhere, RESULTS / f"{table}.jsonl")
    written = to_csv(judge([planned.pair for planned in found]))
    assert (RESULTS / f"tables/{table}.csv").read_text("utf-8") == written


def test_pages_show_the_recorded_tables() -> None:
    """Fails when results or the file of tables changed and `make <table> PUBLISH=1` was not run."""
    pages = "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
    shown = re.findall(r"^<!-- ((?!matrix|cures|torture)\w+):start -->", pages, re.M)
    assert "table5" in shown
    for name in shown:
        cells = select(CELLS, name)
        planned = collect(cells, ["paths.outputs=nowhere"], RESULTS / f"{name}.jsonl")
        text = markdown(judge([p.pair for p in planned]))
        between = f"<!-- {name}:start -->\n{text.strip()}\n<!-- {name}:end -->"
        assert between in pages, f"run: make {name} PUBLISH=1"
        stale = RESULTS / "tables" / f"{name}.md"
        assert stale.read_text().startswith(text), f"run: make {name} PUBLISH=1"
