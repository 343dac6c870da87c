"""The published numbers are those of the paper, and their cells are found by name."""

import re
import shutil
from pathlib import Path

import pytest

from oversmoothing.errors import InputError
from oversmoothing.lab.report.tables import Cell, load, select
from oversmoothing.lab.search.files import write_best

FILE = Path(__file__).parents[2] / "results" / "expected"


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return load(FILE)


def cell(cells: list[Cell], table: str, block: str, row: str, column: str) -> Cell:
    (found,) = select(cells, table, [block], [row], [column])
    return found


@pytest.mark.parametrize(("table", "blocks"), [("table5", 4), ("table6", 3)])
def test_every_cell_is_there_once(cells: list[Cell], table: str, blocks: int) -> None:
    chosen = [c for c in select(cells, table) if c.value is not None]  # controls have none
    assert len(chosen) == blocks * 5 * 5
    assert len({(c.block, c.key, c.column) for c in chosen}) == len(chosen)
    assert len({c.overrides for c in chosen}) == len(chosen)


@pytest.mark.parametrize(
    ("table", "block", "row", "column", "value", "std"),
    [
        ("table5", "Cora", "vanilla", "L=2", 81.75, 0.51),
        ("table5", "Cora", "layernorm", "L=16", 7.79, 0.0),
        ("table5", "Cora", "centered", "L=32", 52.12, 7.0),
        ("table5", "CiteSeer", "pairnorm", "L=8", 55.76, 4.45),
        ("table5", "Chameleon", "vanilla", "L=32", 23.37, 0.0),
        ("table5", "Chameleon", "centered", "L=32", 39.05, 11.0),
        ("table5", "Squirrel", "layernorm", "L=32", 19.40, 0.19),
        ("table5", "Squirrel", "contranorm", "L=16", 32.37, 0.93),
        ("table5", "Squirrel", "centered", "L=8", 38.12, 8.0),
        ("table6", "Cora", "vanilla", "L=4", 81.22, 2.2),
        ("table6", "CiteSeer", "contranorm", "L=2", 69.45, 0.2),
        ("table6", "Chameleon", "pairnorm", "L=2", 67.32, 7.7),
        ("table6", "Chameleon", "centered", "L=32", 50.11, 1.3),
    ],
)
def test_transcription(
    cells: list[Cell], table: str, block: str, row: str, column: str, value: float, std: float
) -> None:
    found = cell(cells, table, block, row, column)
    assert (found.value, found.std) == (value, pytest.approx(std))


def test_sums_of_the_printed_tables(cells: list[Cell]) -> None:
    """Added up from the paper's text; a slip in any digit shows."""
    tables = ("table5", "table6")
    sums = {t: round(sum(c.value or 0 for c in select(cells, t)), 2) for t in tables}
    assert sums == {"table5": 4515.68, "table6": 4469.03}


def test_the_misprint_is_kept_and_corrected(cells: list[Cell]) -> None:
    (found,) = [c for c in cells if c.corrected is not None and not c.reading]
    assert (found.value, found.target) == (23.37, 22.37)
    assert found.target == pytest.approx(100 * 102 / 456, abs=0.005)
    assert "misprint" in found.note


def test_overrides_make_the_papers_rows(cells: list[Cell]) -> None:
    found = cell(cells, "table5", "Cora", "centered (w/ Ours)", "L=16")
    assert set(found.overrides) == {
        "data=cora",
        "aggregator=centered",
        "aggregator@then=layernorm",
        "backbone.depth=16",
    }
    assert (found.experiment, found.metric, found.runs) == ("gnn_table5", "test_accuracy", 5)


def test_a_tuned_cell_has_the_settings_of_its_search(
    tmp_path: Path,
) -> None:
    (tmp_path / "tuning/table6").mkdir(parents=True)
    shutil.copytree(FILE, tmp_path / "expected")
    found = {"overrides": ["trainer.lr=0.02", "seeds=[0,1]"], "val_accuracy": 80.0}
    write_best(tmp_path / "tuning/table6", ("Cora", "centered", "L=4"), found)
    every = select(load(tmp_path / "expected"), "table6")
    [tuned] = [cell for cell in every if cell.reason is None]
    assert (tuned.block, tuned.key, tuned.column) == ("Cora", "centered", "L=4")
    assert tuned.overrides[-2:] == ("trainer.lr=0.02", "seeds=[0,1]")
    lacking = "no settings yet; `scripts/tune.py table6` finds them"
    assert {c.reason for c in every} == {None, lacking}
    assert [cell for cell in every if cell.runnable] == [tuned]
    plain = select(load(tmp_path / "expected", tuned=False), "table6")
    assert {c.reason for c in plain} == {None}
    assert tuned.overrides[:-2] in [cell.overrides for cell in plain]


def test_every_cell_of_table5_is_run(cells: list[Cell]) -> None:
    assert {c.reason for c in select(cells, "table5")} == {None}


def test_select_knows_other_names_and_case(cells: list[Cell]) -> None:
    assert {c.key for c in select(cells, "table5", ["CORA"], ["none", "centered"])} == {
        "vanilla",
        "centered",
    }
    assert len(select(cells, "table5", columns=["L=2", "L=32"])) == 40


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("tabel5",), "table5"),
        (("table5", ["coral"]), "Cora"),
        (("table5", [], ["centred"]), "centered"),
        (("table5", [], [], ["L=3"]), "L=32"),
    ],
)
def test_select_says_what_was_meant(cells: list[Cell], arguments: tuple, meant: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"did you mean {meant!r}?")):
        select(cells, *arguments)
