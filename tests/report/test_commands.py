"""Every cell of every table is a command that composes, and shows what the records say."""

from pathlib import Path

import pytest
import yaml

from oversmoothing.lab.launch.check import Known, all_problems, config_problems
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.report.publish import markdown, to_csv
from oversmoothing.lab.report.results import collect
from oversmoothing.lab.report.tables import Cell, load, select
from oversmoothing.lab.report.verdict import judge
from oversmoothing.lab.store.identity import run_id

RESULTS = Path(__file__).parents[2] / "results"
FOLDER = RESULTS / "expected"
FILES = {path.stem: yaml.safe_load(path.read_text())["tables"] for path in FOLDER.glob("*.yaml")}
TABLES = [  # tests/papers/test_cures.py has the others
    name for tables in FILES.values() for name in tables if name != "cures"
]
HERE = {  # experiments on data that tests have -> the tables on them
    "seg_voc_subset": ("seg_subset", "seg_subset_eta"),
    "cls_digits": ("cls_depth", "cls_depth_tokens"),
    "cls_digits_eamlp": ("eamlp_norms",),
    "cls_ablation": ("contranorm_ablation",),
    "glue_sst2_small": ("text_depth", "text_depth_tokens", "text_rates"),
}
QUICK = {"cls_ablation": ["data.num_train=50", "data.num_val=20"]}
NEEDS = {
    "cls_digits": "sklearn",
    "cls_digits_eamlp": "sklearn",
    "glue_sst2_small": "transformers",
}
WSSS = ("table1", "table2", "table3", "table4")
WSSS += ("wsss_gamma", "wsss_ablation", "wsss_blocks", "wsss_tries")
WITHOUT_FILES = ("data=scenes", "data.num_train=8", "data.num_val=4")
WITHOUT_FILES += ("backbone=deit_ti", "backbone.weights=none", "backbone.sha256=null")


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return load(FOLDER)


def commands(cells: list[Cell], table: str) -> dict[tuple[str, ...], Cell]:
    chosen = [c for c in select(cells, table) if c.runnable]
    return {(f"experiment={c.experiment}", *c.overrides): c for c in chosen}


@pytest.mark.parametrize("table", TABLES)
def test_every_command_has_a_run_of_its_own_and_the_table_is_that_of_the_records(
    cells: list[Cell], table: str, tmp_path: Path
) -> None:
    """Two commands of a table never name one run: an override would do nothing. After new results:
    ``oversmoothing table TABLE --draw --publish``."""
    records = RESULTS / f"{table}.jsonl"
    found = collect(select(cells, table), [f"paths.outputs={tmp_path}"], records)
    named: dict[str, tuple[str, ...]] = {}
    for words, config in {p.cell.words: p.config for p in found if p.cell.runnable}.items():
        assert config_problems(config) == {}, words
        first = named.setdefault(run_id(config), words)
        assert first == words or table == "table5_readings"
    if records.exists():
        entries = judge([planned.pair for planned in found])
        assert (RESULTS / f"tables/{table}.csv").read_text("utf-8") == to_csv(entries)
        shown = (RESULTS / f"tables/{table}.md").read_text("utf-8")
        assert shown.startswith(markdown(entries))


@pytest.mark.parametrize("experiment", HERE)
def test_what_is_run_here_passes_every_check(
    cells: list[Cell], experiment: str, data_root: Path, tmp_path: Path
) -> None:
    if module := NEEDS.get(experiment):
        pytest.importorskip(module)
    paths = [f"paths.data={data_root}", f"paths.outputs={tmp_path}"]  # where nothing is finished
    known, quick = Known(), QUICK.get(experiment, [])  # data is read once
    for table in HERE[experiment]:
        of_rows = {c.key: words for words, c in commands(cells, table).items()}
        for words in of_rows.values():  # one a row: columns change sizes only
            assert all_problems(compose_config([*words, *paths, *quick]), known) == []


def test_every_wsss_run_passes_every_check(cells: list[Cell], generated: Path) -> None:
    known, fixed = Known(), [*WITHOUT_FILES, f"paths.cache={generated}"]  # images are read once
    runs = {words: None for table in WSSS for words in commands(cells, table)}
    assert len(runs) > 25
    for words in runs:
        random = ["task.adaptation=0"] * any("task.adaptation" in word for word in words)
        assert all_problems(compose_config([*words, *fixed, *random]), known) == []
