"""A table from published cells to records, on the embedded graph."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import run_all
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import run_folder
from oversmoothing.lab.report.results import (
    Planned,
    collect,
    conditions,
    describe,
    estimate,
    read_records,
    tables_with,
    write_records,
)
from oversmoothing.lab.report.tables import load, select
from oversmoothing.lab.store.identity import ids, run_id
from oversmoothing.lab.store.results import write_result

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
QUICK = ["data.num_nodes=400", "trainer.epochs=3", "seeds=[0,1]", "logger=none", "threads=1"]


@pytest.fixture
def cells(tmp_path: Path) -> list:
    (tmp_path / "expected.yaml").write_text(TABLE)
    return select(load(tmp_path / "expected.yaml"), "small")


def test_runs_what_is_missing_and_records_it(tmp_path: Path, cells: list) -> None:
    words = [*QUICK, f"paths.outputs={tmp_path / 'out'}"]
    planned = collect(cells, words, None)
    assert all(p.missing and p.measured is None for p in planned)
    assert "2 runs are missing; no run to estimate from" in describe(planned, planned)
    assert run_all([p.config for p in planned[:1]], jobs=1) == []
    planned = [p.looked_up() for p in planned]
    assert [p.missing for p in planned] == [False, True]
    first = planned[0]
    assert first.measured.values == tuple(
        first.result["seeds"][seed]["test_accuracy"] for seed in ("0", "1")
    )
    assert estimate(planned[1], planned) == pytest.approx(2 * first.result["seconds"])

    write_records(tmp_path / "none.jsonl", planned[1:])
    assert not (tmp_path / "none.jsonl").exists(), "nothing of it is measured"
    write_records(tmp_path / "small.jsonl", planned)
    elsewhere = [*QUICK, f"paths.outputs={tmp_path / 'fresh clone'}"]
    again = collect(cells, elsewhere, tmp_path / "small.jsonl")
    assert [p.missing for p in again] == [False, True]
    assert again[0].measured == first.measured
    beside = collect(cells, elsewhere, tmp_path / "other table.jsonl")
    assert beside[0].measured == first.measured, "a run that another table has is done"
    assert collect(cells, elsewhere, None)[0].missing, "a fresh count ignores the records"


def test_a_file_that_is_no_result_is_one_line(tmp_path: Path, cells: list) -> None:
    words = [*QUICK, f"paths.outputs={tmp_path / 'out'}"]
    [first, _] = collect(cells, words, None)
    folder = run_folder(first.config)
    folder.mkdir(parents=True)
    write_result(folder, {"seeds": {}})
    with pytest.raises(InputError, match=r"result\.json: id: expected .* restore the file, or"):
        collect(cells, words, None)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("aggregator=centred", "aggregator: there is no 'centred'; did you mean 'centered'"),
        ("aggregator._target_=nowhere.Mine", "the folder of a module of yours must be on PYTHON"),
    ],
)
def test_a_mistake_in_a_cell_names_the_cell(word: str, said: str, cells: list) -> None:
    wrong = [replace(cells[1], overrides=(*cells[1].overrides, word))]
    with pytest.raises(InputError, match=f"^small, SBM, vanilla, L=2: .*{said}"):
        collect(wrong, [], None)


def test_tables_that_show_a_run_are_found(tmp_path: Path, cells: list) -> None:
    words = [*QUICK, f"paths.outputs={tmp_path / 'out'}"]
    deeper = [replace(c, overrides=(*c.overrides, "backbone.depth=5")) for c in cells]
    elsewhere = [replace(c, experiment="gnn_table6") for c in cells]
    others = {"twin": cells, "deeper": deeper, "elsewhere": elsewhere}
    every = [
        replace(c, about=c.about.model_copy(update={"name": name}))
        for name, own in others.items()
        for c in own
    ]
    planned = collect(cells, words, None)
    found = [
        [p.cell.table for p in table] for table in tables_with(planned, every, words, tmp_path)
    ]
    assert found == [["twin", "twin"]]
    assert not [*tables_with([], every, words, tmp_path)], "nothing has run"


def test_a_recorded_seed_keeps_its_result(tmp_path: Path, cells: list) -> None:
    """20 seeds on record, two of them run here on another machine, with other results."""
    words = [
        *QUICK,
        f"paths.outputs={tmp_path / 'out'}",
        f"seeds=[{','.join(map(str, range(20)))}]",
    ]
    path = tmp_path / "small.jsonl"
    run_all([p.of_seeds([0, 1]).config for p in collect(cells[:1], words, None)])
    (here,) = collect(cells[:1], words, None)
    assert f"2 of {len(here.config.seeds)} seeds so far" in here.so_far() and not here.measured
    seeds = {str(seed): {"test_accuracy": 38.01 + seed} for seed in range(20)}
    env = {**here.result["env"], "git": "881cc48c5962", "cpu_capability": "AVX2"}
    record = {**here.result, "seeds": seeds, "env": env, "seconds": 7.5}
    path.write_text(json.dumps(record) + "\n")
    records = read_records(path)
    (planned,) = collect(cells[:1], words, path)
    assert not planned.missing and planned.looked_up(records).result == record
    assert not planned.so_far()
    write_records(path, [planned])
    (kept,) = read_records(path).values()
    assert all(kept[key] == record[key] for key in ("seeds", "env", "seconds"))
    line, own = planned.beside(records), here.result["seeds"]
    assert "recorded seeds 0, 1: 38.01, 39.01 (commit 881cc48c5962, with AVX2), here" in line
    assert all(f"{own[seed]['test_accuracy']:.4g}" in line for seed in "01")
    replaced = planned.looked_up(records, here_first=True).result["seeds"]
    assert replaced == {**seeds, **own}, "asked for"
    path.write_text(json.dumps({**record, "seeds": seeds | own}) + "\n")
    assert not planned.beside(read_records(path)), "nothing differs"


def test_records_are_those_of_the_table(tmp_path: Path, cells: list) -> None:
    words = [*QUICK, f"paths.outputs={tmp_path / 'out'}"]
    run_all([p.config for p in collect(cells, words, None)], jobs=1)
    one, two = collect(cells, words, None)
    path = tmp_path / "records.jsonl"
    write_records(path, [one, two])
    elsewhere = collect(cells, [*QUICK, f"paths.outputs={tmp_path / 'b'}"], path)
    assert [p.result["id"] for p in elsewhere] == [one.result["id"], two.result["id"]]
    write_records(path, [one, replace(two, result=None)])
    assert [*read_records(path)] == [one.result["id"]]


def test_an_earlier_record_is_shown_until_the_run_is_repeated(tmp_path: Path, cells: list) -> None:
    """It keeps its id and says so; new seeds are not merged with it."""
    words = [*QUICK, f"paths.outputs={tmp_path / 'out'}"]
    config = collect(cells, words, None)[0].config
    seeds = {"0": {"test_accuracy": 1.0}, "1": {"test_accuracy": 3.0}}
    earlier = {"id": ids(config)[1], "name": "x", "seconds": 1.0, "seeds": seeds, "config": {}}
    earlier["env"] = {}
    path = tmp_path / "small.jsonl"
    path.write_text(json.dumps(earlier) + "\n")
    run_all([compose_config([f"experiment={cells[0].experiment}", *cells[0].overrides, *words,
                             "seeds=[0]"])], 1)  # fmt: skip
    shown = collect(cells, words, path)
    assert [p.missing for p in shown] == [False, True]
    assert shown[0].measured.values == (1.0, 3.0)
    assert "earlier" in shown[0].measured.conditions
    write_records(path, shown)
    assert read_records(path) == {earlier["id"]: earlier}
    assert len(collect(cells, words, None)[0].result["seeds"]) == 1, "only the new seed"
    run_all([config], 1)
    (shown, _), records = collect(cells, words, path), read_records(path)
    assert shown.result == earlier and "recorded seeds 0, 1: 1, 3" in shown.beside(records)
    write_records(path, [shown.looked_up(records, here_first=True)])
    assert [*read_records(path)] == [run_id(config)]


def test_some_seeds_are_run_first(tmp_path: Path, cells: list) -> None:
    words = [*QUICK, f"paths.outputs={tmp_path / 'out'}"]
    first = [p.of_seeds([1]) for p in collect(cells, words, None)[:1]]
    assert [p.cell.command for p in first] == [f"{cells[0].command} 'seeds=[1]'"]
    again = [p.of_seeds([1]).cell.command for p in first]
    assert again == [p.cell.command for p in first], "a key is shown once"
    run_all([p.config for p in first], 1)
    assert [p.looked_up().missing for p in first] == [False]
    whole = collect(cells, words, None)[0]
    assert whole.missing and [*whole.result["seeds"]] == ["1"]
    run_all([whole.config], 1)
    assert [*whole.looked_up().result["seeds"]] == ["0", "1"]


def test_seeds_of_other_data_are_named_and_not_recorded(tmp_path: Path, cells: list) -> None:
    path, words = tmp_path / "small.jsonl", [*QUICK, f"paths.outputs={tmp_path / 'a'}"]
    run_all([p.of_seeds([1]).config for p in collect(cells[:1], words, None)])
    (here,) = collect(cells[:1], words, None)
    env = {**here.result["env"], "data": "other"}
    record = {**here.result, "seeds": {"0": here.result["seeds"]["1"]}, "env": env}
    path.write_text(json.dumps(record) + "\n")
    (planned,) = collect(cells[:1], words, path)
    assert planned.missing and planned.result == record
    assert "recorded seed 1: none (data other), here" in planned.beside(read_records(path))


def test_a_recorded_seed_is_not_trained_again(tmp_path: Path, cells: list) -> None:
    """One seed on record, run elsewhere: only the other one is planned, and both are recorded."""
    path, words = tmp_path / "small.jsonl", [*QUICK, f"paths.outputs={tmp_path / 'a'}"]
    run_all([p.of_seeds([0]).config for p in collect(cells[:1], words, None)])
    write_records(path, collect(cells[:1], words, None))
    words = [*QUICK, f"paths.outputs={tmp_path / 'b'}"]
    (planned,) = collect(cells[:1], words, path)
    assert planned.missing and planned.remainder.config.seeds == [1]
    run_all([planned.remainder.config])
    assert [*collect(cells[:1], words, None)[0].result["seeds"]] == ["1"]
    (whole,) = collect(cells[:1], words, path)
    assert not whole.missing and len(whole.measured.values) == 2
    assert whole.unrecorded(read_records(path)).endswith("L=1: seed 1 not in results/")
    write_records(path, [whole])
    assert not whole.unrecorded(read_records(path))
    (record,) = read_records(path).values()
    assert [*record["seeds"]] == ["0", "1"] and record["seconds"] > planned.result["seconds"]


def test_only_a_table_of_ours_shows_the_seeds_that_there_are() -> None:
    config = SimpleNamespace(seeds=[0, 1, 2])
    result = {"id": "0a1b", "seconds": 9.0, "seeds": {"0": {"x": 3.0}, "2": {"x": 5.0}}}
    for ours in (False, True):
        cell = SimpleNamespace(about=SimpleNamespace(ours=ours), metric="x")
        found = Planned(cell, config, result).measured
        assert (found and (found.seeds, found.values)) == (((0, 2), (3.0, 5.0)) if ours else None)
        assert Planned(cell, config, result | {"seeds": {}}).measured is None


def test_how_a_number_was_measured() -> None:
    said = {"layers": "64 images", "val": {"seg": "whole", "cam": "squashed"}}
    assert conditions({"conditions": said}, "val_seg_miou") == "whole"
    assert conditions({"conditions": said}, "val_cam_iou.cat") == "squashed"
    assert conditions({"conditions": said}, "layers_before.cosine.-1") == "64 images"
    assert conditions({}, "val_seg_miou") == conditions({"conditions": said}, "test_acc") == ""


def test_a_cam_at_its_best_threshold_does_not_name_the_fixed_one() -> None:
    said = {"val": {"cam": "squashed, background ≤ 0.5, no CRF"}}
    assert conditions({"conditions": said}, "val_cam_common_miou") == said["val"]["cam"]
    best = conditions({"conditions": said}, "val_cam_best_common_miou")
    assert best == "squashed, best background threshold, no CRF"
