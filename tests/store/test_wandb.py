"""The copy of a run for W&B, offline: what its logs hold, under its id."""

import csv
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_log import log_lines

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.identity import run_id
from oversmoothing.lab.store.wandb import WandbSink, by_seed, final_numbers

pytest.importorskip("wandb")

TINY = ["data.num_nodes=400", "trainer.epochs=20", "trainer.eval_every=5", "seeds=[0,3]"]


def config(outputs: Path, *overrides: str):
    return compose_config([*TINY, f"paths.outputs={outputs}", "threads=1", *overrides])


@pytest.fixture(autouse=True)
def no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes accounts and settings of W&B from the environment."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)


def records(folder: Path, seed: int) -> Iterator:
    """All records of the only offline file of a seed.

    The file is a log of records in blocks of 32 KiB: 7 bytes of head, then for each part of a
    record checksum (4 bytes), length (2), kind (1: whole, 2: first, 3: middle, 4: last).
    """
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # finish() alone returns before W&B's own process has written everything
    (path,) = folder.glob(f"wandb/offline-run-*/run-*-seed{seed}.wandb")
    data, at, parts = path.read_bytes(), 7, b""
    while at < len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(parts)
            parts = b""


def test_each_seed_gets_its_scalars_and_nothing_is_lost() -> None:
    line = {"seeds": [0, 3], "epoch": 20, "train_loss": [0.5, 0.25], "val_accuracy": [50, 60]}
    line |= {"lr": 0.1, "layers": [{"mad": [1.0, 2.0]}, {"mad": [3.0, 4.0]}], "gammas": [1, 2, 3]}
    first, third = by_seed(line).values()
    assert first == {
        **{"epoch": 20, "train/loss": 0.5, "val/accuracy": 50, "train/lr": 0.1},
        **{"layers/mad/1": 1.0, "layers/mad/2": 2.0, "gammas/1": 1, "gammas/2": 2, "gammas/3": 3},
    }
    assert third["train/loss"] == 0.25 and third["layers/mad/2"] == 4.0
    assert by_seed({"seeds": [3], "train_loss": [0.25]}) == {3: {"train/loss": 0.25}}


def test_final_numbers_are_those_of_the_result() -> None:
    assert final_numbers({"acc": 80.0, "layers": {"mad": [1.0]}}) == {"result/acc": 80.0}


def test_a_seed_logs_offline_what_its_file_holds(tmp_path: Path) -> None:
    asked = config(tmp_path, "logger=wandb", "aggregator=centered", "task.layer_metrics=true")
    execute(asked)
    for seed in (0, 3):
        found = [*records(run_folder(asked), seed)]
        rows = [
            {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in r.history.item}
            for r in found
            if r.HasField("history")
        ]
        kept = [{key: v for key, v in row.items() if not key.startswith("_")} for row in rows]
        assert kept == [by_seed(line)[seed] for line in log_lines(run_folder(asked))]
        assert len(kept) == 4 and "layers/cosine/2" in kept[0]
        summary = [i.key for r in found if r.HasField("summary") for i in r.summary.update]
        assert {"result/test_accuracy", "result/train_loss"} <= {*summary}
        (run,) = [r.run for r in found if r.HasField("run")]
        assert (run.run_id, run.project) == (f"{run_id(asked)}-seed{seed}", "oversmoothing")
        assert run.run_group == run_folder(asked).name
        assert {*run.tags} == {"nodes", "csbm", "centered", "2 layers"}
        axes = [r.metric for r in found if r.HasField("metric")]
        assert any(axis.glob_name == "*" and axis.step_metric == "epoch" for axis in axes)


def test_a_table_of_csv_has_a_row_for_each_seed_and_line(tmp_path: Path) -> None:
    asked = config(tmp_path, "logger=csv")
    execute(asked)
    rows = [*csv.DictReader((run_folder(asked) / "metrics.csv").open(encoding="utf-8"))]
    assert [(row["seed"], row["epoch"]) for row in rows[:3]] == [
        ("0", "5"),
        ("3", "5"),
        ("0", "10"),
    ]
    [*_, last] = log_lines(run_folder(asked))
    assert len(rows) == 8 and float(rows[-1]["val/accuracy"]) == last["val_accuracy"][1]


def test_a_run_has_an_entry_of_its_own_beside_one_that_failed(tmp_path: Path) -> None:
    asked = config(tmp_path / "a"), config(tmp_path / "b", "backbone.depth=3")
    for one in asked:
        run_folder(one).mkdir(parents=True)
    given_up, sink = (WandbSink(run_folder(one), one) for one in asked)
    opened = given_up.runs[0].id, sink.runs[0].id
    assert opened == tuple(f"{run_id(one)}-seed0" for one in asked)
    sink.close()
    given_up.close()


def test_a_failure_of_wandb_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def define_metric(self, *_: object, **__: object) -> None:
            pass

        def log(self, *_: object) -> None:
            raise RuntimeError("no\nservice")

    monkeypatch.setattr("wandb.init", lambda **_: Broken())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert "0" in execute(config(tmp_path, "logger=wandb"))["seeds"]
    [line] = [str(warning.message) for warning in said if "logger" in str(warning.message)]
    assert "no service" in line and "\n" not in line


@pytest.mark.parametrize(
    "options, key",
    [({"mode": "online"}, "logger.mode=online"), ({"project": "a/b"}, "logger.project=a/b")],
)
def test_what_wandb_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, key: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(InputError, match=f"^{key}: ") as raised:
        WandbSink(tmp_path, config(tmp_path), **options)
    assert "\n" not in str(raised.value)
