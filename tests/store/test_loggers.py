"""Loggers: each copies what the log of a run holds, under the same names."""

import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_log import log_lines

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import command
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.identity import run_id
from oversmoothing.lab.store.loggers import TensorBoardSink, WandbSink, by_seed

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


def test_a_seed_logs_offline_what_its_file_holds(tmp_path: Path) -> None:
    words = ["logger=wandb", "logger.entity=team", "aggregator=centered"]
    asked = config(tmp_path, *words, "task.layer_metrics=true")
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
        named = (run.run_id, run.project, run.entity)
        assert named == (f"{run_id(asked)}-seed{seed}", "oversmoothing", "team")
        assert run.run_group == run_folder(asked).name
        assert {*run.tags} == {"nodes", "csbm", "centered", "2 layers"}
        axes = [r.metric for r in found if r.HasField("metric")]
        assert any(axis.glob_name == "*" and axis.step_metric == "epoch" for axis in axes)


class Writer:
    """Stands for TensorBoard's writer, which tests may lack; keeps what it gets."""

    made: list["Writer"] = []

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.folder, self.purge_step, self.scalars = Path(folder), purge_step, {}
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars[step, name] = value

    def add_hparams(self, facts: dict, numbers: dict, run_name: str) -> None:
        self.facts, self.numbers = facts, numbers

    def close(self) -> None:
        pass


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    monkeypatch.setattr(Writer, "made", [])
    fake = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    return Writer.made


def by_step(rows: Iterator[dict[str, Any]]) -> dict[tuple[int, str], float]:
    """Rows of scalars -> (epoch, name) -> value."""
    return {(row["epoch"], name): row[name] for row in rows for name in row.keys() - {"epoch"}}


def test_tensorboard_gets_the_scalars_of_the_log(tmp_path: Path, writers: list) -> None:
    execute(asked := config(tmp_path, "logger=tensorboard", "diagnose_every=10"))
    folder = run_folder(asked)
    lines = [by_seed(line) for line in log_lines(folder)]
    assert [writer.folder for writer in writers] == [
        folder / "tensorboard" / f"seed{seed}" for seed in (0, 3)
    ]
    for seed, writer in zip((0, 3), writers, strict=True):
        expected = by_step(line[seed] for line in lines)
        assert writer.scalars == expected
        assert {"val/accuracy", "train/loss", "layers/effective_rank/2"} <= {n for _, n in expected}
        facts = {"seed": seed, "task": "nodes", "data": "csbm", "method": "none"}
        assert writer.facts == facts | {"depth": "2 layers"}
        assert writer.numbers["result/test_accuracy"] > 0 and writer.purge_step == 0


def test_event_files_hold_the_scalars_of_the_log(tmp_path: Path) -> None:
    """Those after a checkpoint come again in a resumed run, and count once."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    asked, sink = config(tmp_path), None
    for steps in ((5, 10), (10, 15)):
        sink = TensorBoardSink(tmp_path, asked)
        for step in steps:
            sink({"seeds": [0], "epoch": step, "train_loss": [1 / step]})
        sink.close()
    read = EventAccumulator(str(tmp_path / "tensorboard" / "seed0")).Reload()
    found = [(event.step, event.value) for event in read.Scalars("train/loss")]
    assert found == [(step, pytest.approx(1 / step)) for step in (5, 10, 15)]


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


def test_a_missing_package_is_named_before_any_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oversmoothing.lab.launch.check.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"\[tensorboard\]") as raised:
        command(["logger=tensorboard"])
    assert raised.value.key == "logger"
