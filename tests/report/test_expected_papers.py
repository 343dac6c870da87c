"""The numbers of HEMNet, ContraNorm and external attention are the papers', and fit together."""

from pathlib import Path

import pytest

from oversmoothing.lab.report.tables import Cell, load, select

FILE = Path(__file__).parents[2] / "results" / "expected"
COLUMNS = ("η=0.1", "η=0.2", "η=0.4", "η=0.8", "EMANet")
BEST = dict(zip(COLUMNS, (12, 6, 4, 2, 2)))  # T of training behind Table 2


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return load(FILE)


def column(cells: list[Cell], table: str, name: str) -> dict[str, float]:
    return {c.key: c.value for c in select(cells, table, columns=[name])}


@pytest.mark.parametrize(
    ("table", "number", "total"),
    [
        ("hemnet_table1", 40, 3098.56),
        ("hemnet_table2", 40, 3070.15),
        ("hemnet_table3", 12, 962.59),
        ("hemnet_table4", 11, 951.4),
        ("hemnet_table5", 10, 518.7),
        ("hemnet_table6", 7, 265.4),
    ],
)
def test_every_printed_value_is_there(
    cells: list[Cell], table: str, number: int, total: float
) -> None:
    """Totals added up from the paper's text, row by row; a slip in any digit shows."""
    chosen = select(cells, table)
    assert len(chosen) == len({(c.key, c.column) for c in chosen}) == number
    assert sum(c.value for c in chosen) == pytest.approx(total)
    assert len({c.decimals for c in chosen}) == 1


@pytest.mark.parametrize(
    ("table", "row", "column", "value"),
    [
        ("hemnet_table1", "T=1", "η=0.1", 77.17),
        ("hemnet_table1", "T=6", "η=0.2", 78.22),
        ("hemnet_table1", "T=16", "EMANet", 76.29),
        ("hemnet_table2", "T=1", "η=0.1", 64.52),
        ("hemnet_table2", "T=4", "η=0.8", 78.42),
        ("hemnet_table2", "T=16", "EMANet", 77.16),
        ("hemnet_table3", "hemnet", "MS + Flip", 82.23),
        ("hemnet_table3_cost", "resnet101", "memory", 6.874),
        ("hemnet_table3_cost", "hemnet", "memory", 0.331),
        ("hemnet_table3_cost", "emanet_256", "parameters", 5.15),
        ("hemnet_table4", "hemnet", "mIoU", 88.0),
        ("hemnet_table5", "sgr_coco", "mIoU", 52.5),
        ("hemnet_table6", "dsspn", "mIoU", 37.3),
        ("external_imagenet", "external_single", "top-1", 63.2),
        ("external_segmentation", "eanet", "ADE20K val", 45.33),
    ],
)
def test_transcription(cells: list[Cell], table: str, row: str, column: str, value: float) -> None:
    (found,) = select(cells, table, [], [row], [column])
    assert found.value == value


@pytest.mark.parametrize("name", COLUMNS)
def test_tables_1_and_2_of_hemnet_share_the_run_that_is_best_in_table_1(
    cells: list[Cell], name: str
) -> None:
    trained, evaluated = (column(cells, f"hemnet_table{i}", name) for i in (1, 2))
    best = f"T={BEST[name]}"
    assert max(trained, key=trained.get) == best
    assert evaluated[best] == trained[best]
    one = select(cells, "hemnet_table2", columns=[name])[0]
    own = "aggregator.step_size=0.5" if name == "EMANet" else f"aggregator.step_size={name[2:]}"
    assert (own in one.overrides) is (name != "EMANet")
    assert f"aggregator.iterations={BEST[name]}" in one.overrides


def test_more_iterations_in_evaluation_help_unless_eta_is_0_2(cells: list[Cell]) -> None:
    """What the text of HEMNet says of its Table 2."""
    for name in COLUMNS:
        found = column(cells, "hemnet_table2", name)
        later = [value for key, value in found.items() if int(key[2:]) > BEST[name]]
        assert (max(later) > found[f"T={BEST[name]}"]) is (name != "η=0.2")


def test_the_best_step_size_is_in_between_but_does_not_fall_with_t(cells: list[Cell]) -> None:
    """The text says that it falls; the note says what the table does."""
    best = []
    for t in (1, 2, 3, 4, 6, 8, 12, 16):
        row = select(cells, "hemnet_table1", rows=[f"T={t}"])
        best.append(max(row, key=lambda c: c.value).column[2:])
    assert best == ["0.4", "0.8", "0.8", "0.4", "0.2", "0.2", "0.2", "0.4"]
    assert ", ".join(best) in row[0].about.note


def test_hemnet_costs_what_emanet_does(cells: list[Cell]) -> None:
    for name in ("FLOPs", "parameters"):
        cost = column(cells, "hemnet_table3_cost", name)
        assert cost["hemnet"] == cost["emanet"] and cost["hemnet_256"] == cost["emanet_256"]
    assert not any(c.runnable for c in select(cells, "hemnet_table3_cost"))
    assert {c.metric for c in select(cells, "hemnet_table3_cost")} == {
        "cost_gflops",
        "cost_memory_gb",
        "cost_params_m",
    }


def test_only_emanet_and_hemnet_are_run_of_the_papers_comparisons(cells: list[Cell]) -> None:
    for table in ("hemnet_table3", "hemnet_table5", "hemnet_table6"):
        run = {c.key.removesuffix("_256") for c in select(cells, table) if c.runnable}
        assert run == {"emanet", "hemnet"}
        assert all(c.reason for c in select(cells, table))
    assert not any(c.runnable for c in select(cells, "hemnet_table4"))


def test_contranorms_known_values(cells: list[Cell]) -> None:
    """Values of single tasks and of 12 and 16 blocks are unknown: these have no verdict."""
    found = {
        (c.table, c.block, c.key, c.column): c.value
        for table in ("contranorm_table1", "contranorm_table2")
        for c in select(cells, table)
    }
    assert len(found) == 4 * 10 + 2 * 2 * 3
    assert {key[1:3] + key[3:]: value for key, value in found.items() if value is not None} == {
        ("", "bert", "average"): 82.59,
        ("", "bert_contranorm", "average"): 83.39,
        ("", "albert", "average"): 83.74,
        ("", "albert_contranorm", "average"): 84.67,
        ("ImageNet-100", "deit", "L=24"): 76.76,
        ("ImageNet-100", "contranorm", "L=24"): 81.28,
        ("ImageNet-1k", "deit", "L=24"): 77.69,
        ("ImageNet-1k", "contranorm", "L=24"): 78.67,
    }


def test_averages_are_those_of_the_tasks_where_all_are_known(cells: list[Cell]) -> None:
    """Holds of itself while values are "?"; a value filled in later is held against the mean."""
    for key in ("bert", "bert_contranorm", "albert", "albert_contranorm"):
        *tasks, mean = select(cells, "contranorm_table1", rows=[key])
        assert len(tasks) == 9 and all(c.runnable for c in tasks) and not mean.runnable
        if all(c.value is not None for c in tasks):
            assert sum(c.value for c in tasks) / 9 == pytest.approx(mean.value, abs=0.011)


def test_scales_of_contranorm_are_the_papers(cells: list[Cell]) -> None:
    def scales(table: str) -> dict[str, str]:
        return {
            f"{c.block} {c.column}": [o for o in c.overrides if ".scale=" in o][-1].split("=")[1]
            for c in select(cells, table)
            if c.key in ("contranorm", "bert_contranorm") and c.runnable
        }

    vision, language = scales("contranorm_table2"), scales("contranorm_table1")
    assert vision.pop("ImageNet-1k L=24") == "0.3" and set(vision.values()) == {"0.2"}
    assert (language.pop(" RTE"), language.pop(" CoLA")) == ("0.005", "0.01")
    assert set(language.values()) == {"0.05"}
