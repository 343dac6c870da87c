"""The published numbers are those of the papers: sums of all digits, and how they fit together."""

import math
import re
import shutil
from pathlib import Path

import pytest

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import class_names
from oversmoothing.lab.report.tables import Cell, load, select
from oversmoothing.lab.search.files import write_best

FOLDER = Path(__file__).parents[2] / "results" / "expected"
SUMS = {  # checksums of the files: number, sum and sum of ± of the printed values
    "anchors": (8, 646.28, 1.1),
    "table1": (34, 2361.7, 0),
    "table2": (110, 7598.1, 0),
    "table3": (8, 557.7, 0),
    "table4": (18, 1106.7, 0),
    "table5": (100, 4515.68, 229.83),
    "table6": (75, 4469.03, 166.2),
    "contranorm_table1": (4, 334.39, 0),
    "contranorm_table2": (4, 314.4, 0),
    "contranorm_table3": (80, 3418.94, 136.83),
    "contranorm_graphs_older": (60, 3153.48, 0),
    "contranorm_ogbn": (4, 306.66, 0.34),
    "contranorm_singular": (20, 254.0, 0),
    "external_imagenet": (7, 514.0, 0),
    "external_segmentation": (2, 127.03, 0),
    "gcnii": (6, 504.5, 0),
    "hemnet_table1": (40, 3098.56, 0),
    "hemnet_table2": (40, 3070.15, 0),
    "hemnet_table3": (12, 962.59, 0),
    "hemnet_table3_cost": (21, 1096.852, 0),
    "hemnet_table4": (11, 951.4, 0),
    "hemnet_table5": (10, 518.7, 0),
    "hemnet_table6": (7, 265.4, 0),
}


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return load(FOLDER)


def test_sums_of_the_printed_tables(cells: list[Cell]) -> None:
    """A slip in any digit shows."""
    plain = [c for c in cells if c.value is not None and not c.reading]
    assert {c.table for c in plain} == SUMS.keys()
    for table, (number, total, spread) in SUMS.items():
        own = [c for c in plain if c.table == table]
        assert len({(c.block, c.key, c.column) for c in own}) == len(own) == number
        assert math.fsum(c.value for c in own) == pytest.approx(total)
        assert math.fsum(c.std or 0.0 for c in own) == pytest.approx(spread)


def test_the_misprint_is_kept_and_corrected(cells: list[Cell]) -> None:
    (found,) = [c for c in cells if c.corrected is not None and not c.reading]
    assert (found.value, found.target) == (23.37, 22.37)
    assert found.target == pytest.approx(100 * 102 / 456, abs=0.005)
    assert "misprint" in found.note


def test_a_tuned_cell_has_the_settings_of_its_search(tmp_path: Path) -> None:
    (tmp_path / "tuning/table6").mkdir(parents=True)
    shutil.copytree(FOLDER, tmp_path / "expected")
    found = {"overrides": ["trainer.lr=0.02", "seeds=[0,1]"], "val_accuracy": 80.0}
    write_best(tmp_path / "tuning/table6", ("Cora", "centered", "L=4"), found)
    every = select(load(tmp_path / "expected"), "table6")
    [tuned] = [cell for cell in every if cell.reason is None]
    assert (tuned.block, tuned.key, tuned.column) == ("Cora", "centered", "L=4")
    assert tuned.overrides[-2:] == ("trainer.lr=0.02", "seeds=[0,1]")
    assert [cell for cell in every if cell.runnable] == [tuned]
    plain = select(load(tmp_path / "expected", tuned=False), "table6")
    assert {c.reason for c in plain} == {None}
    assert tuned.overrides[:-2] in [cell.overrides for cell in plain]


def test_select_knows_other_names_and_says_what_was_meant(cells: list[Cell]) -> None:
    found = select(cells, "table5", ["CORA"], ["none", "centered"])
    assert {c.key for c in found} == {"vanilla", "centered"}
    for names, hint in (
        (("tabel5",), "did you mean 'table5'?"),
        (("table5", ["coral"]), "did you mean 'Cora'?"),
        (("table5", [], ["centred"]), "did you mean 'centered'?"),
        (("table5", [], [], ["L=3"]), "known: L=2, L=4, L=8, L=16, L=32"),
    ):
        with pytest.raises(InputError, match=re.escape(hint)):
            select(cells, *names)


def test_class_values_are_measured_in_the_order_of_the_classes(cells: list[Cell]) -> None:
    names = [c.metric.split(".")[-1] for c in select(cells, "table2", rows=["ours"])[:-1]]
    assert names == ["background", *class_names("voc")]
