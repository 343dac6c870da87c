"""A table from published cells to records, on a generated graph."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import cell, own

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import run_all
from oversmoothing.lab.launch.execute import run_folder
from oversmoothing.lab.report.results import (
    Planned,
    collect,
    conditions,
    describe,
    distinct,
    estimate,
    merged_seeds,
    read_records,
    records_beside,
    tables_with,
    write_records,
)
from oversmoothing.lab.report.tables import load, select
from oversmoothing.lab.store.identity import ids
from oversmoothing.lab.store.results import look_up, write_result

TABLE = """
tables:
  small:
    title: a small table
    source: nowhere
    experiment: gnn_table5
    metric: test_accuracy
    unit: "%"
    tolerance: 1.0
    runs: 2
    columns: {L=1: [backbone.depth=1], L=2: [backbone.depth=2]}
    rows:
      vanilla: {label: Vanilla, overrides: [aggregator=none, aggregator@then=none]}
    blocks:
      SBM: {overrides: [data=sbm], cells: {vanilla: [50.0 ± 1.0, 60.0 ± 1.0]}}
"""
QUICK = ["data.num_nodes=400", "trainer.epochs=3", "logger=none", "threads=1"]
RESULT = {
    "val_cam_miou": 20.5,
    "val_cam_iou": {"background": 70.0, "cat": None},
    "layers_after": {"cosine": [0.3, 0.4, 0.66]},
    "conditions": {
        "val": {"cam": "squashed, background ≤ 0.5, no CRF", "seg_crf": "CRF"},
        "layers": "64 images",
    },
}
Plan = Callable[..., list[Planned]]


@pytest.fixture
def cells(tmp_path: Path) -> list:
    (tmp_path / "expected.yaml").write_text(TABLE)
    return select(load(tmp_path / "expected.yaml"), "small")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "small.jsonl"


@pytest.fixture
def plan(tmp_path: Path, cells: list) -> Plan:
    """Collects both cells, or the first, from an output folder and perhaps from records."""

    def collected(
        records: Path | None = None, out: str = "out", seeds: int = 2, first: bool = False
    ) -> list[Planned]:
        words = [f"paths.outputs={tmp_path / out}", f"seeds=[{','.join(map(str, range(seeds)))}]"]
        return collect(cells[:1] if first else cells, [*QUICK, *words], records)

    return collected


def test_runs_what_is_missing_and_records_it(tmp_path: Path, plan: Plan, records: Path) -> None:
    planned = plan()
    assert all(p.missing and p.measured is None for p in planned)
    assert "2 runs are missing; no run to estimate from" in describe(planned, planned)
    assert run_all([p.config for p in planned[:1]], jobs=1) == []
    first, second = planned = [p.looked_up() for p in planned]
    assert [p.missing for p in planned] == [False, True]
    assert first.measured.values == tuple(
        first.result["seeds"][seed]["test_accuracy"] for seed in ("0", "1")
    )
    assert estimate(second, planned) == pytest.approx(2 * first.result["seconds"])
    write_records(tmp_path / "none.jsonl", planned[1:])
    assert not (tmp_path / "none.jsonl").exists(), "nothing of it is measured"
    write_records(records, planned)
    again = plan(records, "fresh clone")
    assert [p.missing for p in again] == [False, True]
    assert again[0].measured == first.measured
    beside = plan(tmp_path / "other table.jsonl", "fresh clone")
    assert beside[0].measured == first.measured, "a run that another table has is done"
    assert plan(None, "fresh clone")[0].missing, "a fresh count ignores the records"
    write_records(records, [replace(first, result=None), second])
    assert not read_records(records), "records are those of the table"


def test_a_file_that_is_no_result_is_one_line(plan: Plan, records: Path) -> None:
    folder = run_folder(plan(first=True)[0].config)
    folder.mkdir(parents=True)
    write_result(folder, {"seeds": {}})
    with pytest.raises(InputError, match=r"result\.json: id"):
        plan()
    records.write_text("<<<<<<< HEAD\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"small\.jsonl"):
        read_records(records)


@pytest.mark.parametrize("word", ["aggregator=centred", "aggregator._target_=nowhere.Mine"])
def test_a_mistake_in_a_cell_names_the_cell(word: str, cells: list) -> None:
    wrong = [replace(cells[1], overrides=(*cells[1].overrides, word))]
    with pytest.raises(InputError, match="^small, SBM, vanilla, L=2: .*(aggregator|nowhere)"):
        collect(wrong, [], None)


def test_tables_that_show_a_run_are_found(tmp_path: Path, plan: Plan, cells: list) -> None:
    deeper = [replace(c, overrides=(*c.overrides, "backbone.depth=5")) for c in cells]
    elsewhere = [replace(c, experiment="gnn_table6") for c in cells]
    others = {"twin": cells, "deeper": deeper, "elsewhere": elsewhere}
    every = [
        replace(c, about=c.about.model_copy(update={"name": name}))
        for name, of in others.items()
        for c in of
    ]
    found = [[p.cell.table for p in table] for table in tables_with(plan(), every, QUICK, tmp_path)]
    assert found == [["twin", "twin"]]
    assert not [*tables_with([], every, QUICK, tmp_path)], "nothing has run"


def test_a_recorded_seed_keeps_its_result(plan: Plan, records: Path) -> None:
    """20 seeds on record, two of them run here on another machine, with other results."""
    run_all([p.config for p in plan(first=True)])
    (here,) = plan(seeds=20, first=True)
    assert len(here.finished) == 2 and not here.measured
    seeds = {str(seed): {"test_accuracy": 38.01 + seed} for seed in range(20)}
    env = {**here.result["env"], "git": "881cc48c5962", "cpu_capability": "AVX2"}
    record = {**here.result, "seeds": seeds, "env": env, "seconds": 7.5}
    records.write_text(json.dumps(record) + "\n", encoding="utf-8")
    known = read_records(records)
    (planned,) = plan(records, seeds=20, first=True)
    assert not planned.missing and planned.looked_up(known).result == record
    write_records(records, [planned])
    (kept,) = read_records(records).values()
    assert all(kept[key] == record[key] for key in ("seeds", "env", "seconds"))


def test_an_earlier_record_is_shown(plan: Plan, records: Path) -> None:
    """It keeps its id and says so; new seeds are not merged with it."""
    [start] = plan(first=True)
    seeds = {"0": {"test_accuracy": 1.0}, "1": {"test_accuracy": 3.0}}
    earlier = {"id": ids(start.config)[1], "name": "x", "seconds": 1.0, "seeds": seeds}
    earlier |= {"config": {}, "env": {}}
    records.write_text(json.dumps(earlier) + "\n", encoding="utf-8")
    run_all([p.config for p in plan(seeds=1, first=True)])
    shown = plan(records)
    assert [p.missing for p in shown] == [False, True]
    assert shown[0].measured.values == (1.0, 3.0)
    assert "earlier" in shown[0].measured.conditions
    write_records(records, shown)
    assert read_records(records) == {earlier["id"]: earlier}
    assert len(plan()[0].result["seeds"]) == 1, "only the new seed"


def test_seeds_of_other_data_are_not_recorded(plan: Plan, records: Path) -> None:
    run_all([p.config for p in plan(seeds=1, first=True)])
    (here,) = plan(first=True)
    env = {**here.result["env"], "data": "other"}
    record = {**here.result, "seeds": {"1": here.result["seeds"]["0"]}, "env": env}
    records.write_text(json.dumps(record) + "\n", encoding="utf-8")
    (planned,) = plan(records, first=True)
    assert planned.missing and planned.result == record


def test_a_recorded_seed_is_not_trained_again(plan: Plan, records: Path) -> None:
    """One seed on record, run elsewhere: only the other one is planned, and both are recorded."""
    run_all([p.config for p in plan(seeds=1, first=True)])
    write_records(records, plan(first=True))
    (planned,) = plan(records, "b", first=True)
    rest = planned.remainder
    assert planned.missing and rest.config.seeds == [1]
    assert rest.cell.command.count("seeds=") == 1
    run_all([rest.config])
    assert [*plan(None, "b", first=True)[0].result["seeds"]] == ["1"]
    (whole,) = plan(records, "b", first=True)
    assert not whole.missing and len(whole.measured.values) == 2
    write_records(records, [whole])
    (record,) = read_records(records).values()
    assert [*record["seeds"]] == ["0", "1"] and record["seconds"] > planned.result["seconds"]


def test_only_a_table_of_ours_shows_the_seeds_that_there_are(plan: Plan) -> None:
    [published] = plan(seeds=3, first=True)
    result = {"id": "0a1b", "seconds": 9.0, "seeds": {"0": {"x": 3.0}, "2": {"x": 5.0}}}
    ours = Planned(own("a", "CAM", metric="x"), published.config, result)
    assert (ours.measured.seeds, ours.measured.values) == ((0, 2), (3.0, 5.0))
    assert replace(published, result=result).measured is None
    assert replace(ours, result=result | {"seeds": {}}).measured is None


def test_a_cell_without_a_run_is_never_missing() -> None:
    (planned,) = collect([cell(70.0, experiment=None, reason="another system")], [], None)
    assert not planned.missing and planned.measured is None and planned.looked_up() == planned


def wsss(columns: int, *rows: tuple[str, ...]) -> list[Planned]:
    """Cells of the real experiment, ``columns`` of them a row and run."""
    run = {"experiment": "wsss_voc_subset", "metric": "val_cam_miou"}
    cells = [
        own(key, "CAM", overrides=words, **run) for key, *words in rows for _ in range(columns)
    ]
    return collect(cells, ["paths.outputs=nowhere"], None)


def test_a_row_of_many_columns_is_one_run() -> None:
    planned = wsss(3, ("a", "aggregator=none"), ("b", "aggregator.gamma=-0.5"))
    assert [p.cell.key for p in distinct(planned)] == ["a", "b"]
    assert "2 runs are missing" in describe(planned, planned)


def test_more_iterations_take_longer_in_proportion() -> None:
    short, long = wsss(1, ("a", "aggregator=none"), ("b", "trainer.iterations=5000"))
    seeds = {str(seed): RESULT for seed in short.config.seeds}
    done = replace(short, result={"seeds": seeds, "seconds": 100.0, "id": "x"})
    ratio = 5000 / short.config.trainer.iterations
    assert estimate(long, [done, long]) == pytest.approx(100.0 * ratio)


def test_seeds_of_a_run_in_several_tables_are_merged(tmp_path: Path) -> None:
    for name, seeds in {"own": "02", "other": "0123"}.items():
        env = {"git": name, "device": "cpu"}
        record = {"id": "a", "name": "nodes-a", "config": {}, "seconds": 60.0, "env": env}
        record["seeds"] = dict.fromkeys(seeds, name)
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record))
    merged = records_beside(tmp_path / "own.jsonl")["a"]
    assert merged["seeds"] == {"0": "own", "1": "other", "2": "own", "3": "other"}
    assert merged["seconds"] == 90.0
    assert merged["env"] == {"git": "own / other", "device": "cpu"}
    assert set(records_beside(tmp_path / "other.jsonl")["a"]["seeds"].values()) == {"other"}


def test_seeds_of_other_data_are_not_merged() -> None:
    def result(seed: str, **env: str) -> dict:
        return {"seeds": {seed: {}}, "seconds": 1.0, "env": env}

    one, other = result("0", data="a"), result("1", data="b")
    assert merged_seeds(one, other) == one
    unknown = merged_seeds(one, result("2"))
    assert [*unknown["seeds"]] == ["0", "2"] and unknown["env"] == {"data": "a / None"}
    assert [*merged_seeds(unknown, result("3", data="a"))["seeds"]] == ["0", "2", "3"]


def test_numbers_are_found_in_mappings_and_lists() -> None:
    assert look_up(RESULT, "val_cam_iou.background", "r") == 70.0
    assert look_up(RESULT, "layers_after.cosine.-1", "r") == 0.66
    assert math.isnan(look_up(RESULT, "val_cam_iou.cat", "r"))
    for metric in (
        "val_cam_moiu",
        "layers_after.cosine.3",
        "layers_after.cosine",
        "val_cam_miou.x",
    ):
        with pytest.raises(InputError, match="run 1a: metric"):
            look_up(RESULT, metric, "run 1a")


def test_conditions_go_with_their_stage() -> None:
    for metric in ("val_cam_common_miou", "val_cam_iou.cat"):
        assert conditions(RESULT, metric) == "squashed, background ≤ 0.5, no CRF"
    best = conditions(RESULT, "val_cam_best_common_miou")
    assert best == "squashed, best background threshold, no CRF"
    assert conditions(RESULT, "val_seg_crf_miou") == "CRF"
    assert conditions(RESULT, "layers_before.cosine.-1") == "64 images"
    assert conditions(RESULT, "test_acc") == conditions({}, "val_cam_miou") == ""
