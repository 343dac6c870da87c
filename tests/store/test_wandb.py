"""The copy of a run for W&B, offline: what its logs hold, under its id."""

import json
import math
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
from oversmoothing.lab.store.wandb import WandbSink, final_numbers, flatten

pytest.importorskip("wandb")

TINY = ["data.num_nodes=400", "trainer.epochs=20", "trainer.eval_every=5", "seeds=[0,3]"]


def config(outputs: Path, *overrides: str):
    return compose_config([*TINY, f"paths.outputs={outputs}", "threads=1", *overrides])


@pytest.fixture(autouse=True)
def no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes accounts and settings of W&B from the environment."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)


def records(folder: Path) -> Iterator:
    """All records of a run folder's only offline file.

    The file is a log of records in blocks of 32 KiB: 7 bytes of head, then for each part of a
    record checksum (4 bytes), length (2), kind (1: whole, 2: first, 3: middle, 4: last).
    """
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # finish() alone returns before W&B's own process has written everything
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
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


def test_flatten_names_a_value_a_seed_and_loses_nothing() -> None:
    line = {"seeds": [0, 3], "epoch": 20, "loss": [0.5, 0.25], "gammas": [1, 2, 3]}
    expected = {"epoch": 20, "loss/seed0": 0.5, "loss/seed3": 0.25, "gammas": [1, 2, 3]}
    assert flatten(line) == expected
    many = flatten({"seeds": [5, 2], "loss": [0.5, 0.25]})
    alone = [flatten({"seeds": [s], "loss": [v]}) for s, v in ((5, 0.5), (2, 0.25))]
    assert many == alone[0] | alone[1]


def test_final_numbers_have_mean_and_sample_std() -> None:
    seeds = {"0": {"acc": 80.0, "layers": {"mad": [1.0]}}, "3": {"acc": 82.0, "layers": {}}}
    flat = final_numbers({"seeds": seeds})
    assert flat["result/acc/seed3"] == 82.0 and flat["result/acc/mean"] == 81.0
    assert flat["result/acc/std"] == pytest.approx(2**0.5)
    assert len(flat) == 4
    assert "result/acc/std" not in final_numbers({"seeds": {"0": seeds["0"]}})
    diverged = final_numbers({"seeds": {"0": {"acc": math.nan}, "3": {"acc": math.nan}}})
    assert math.isnan(diverged["result/acc/mean"]) and "result/acc/std" not in diverged


def test_a_run_logs_offline_what_its_file_holds(tmp_path: Path) -> None:
    asked = config(tmp_path, "logger=wandb")
    execute(asked)
    found = [*records(run_folder(asked))]
    rows = [
        {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in r.history.item}
        for r in found
        if r.HasField("history")
    ]
    kept = [{key: v for key, v in row.items() if not key.startswith("_")} for row in rows]
    assert kept == [flatten(line) for line in log_lines(run_folder(asked))] and len(kept) == 4
    summary = [i.key for r in found if r.HasField("summary") for i in r.summary.update]
    assert {"result/test_accuracy/mean", "result/test_accuracy/seed0"} <= {*summary}
    (run,) = [r.run for r in found if r.HasField("run")]
    assert run.run_id == run_id(asked) and run.project == "oversmoothing"


def test_a_run_has_an_entry_of_its_own_beside_one_that_failed(tmp_path: Path) -> None:
    asked = config(tmp_path / "a"), config(tmp_path / "b", "backbone.depth=3")
    for one in asked:
        run_folder(one).mkdir(parents=True)
    given_up, sink = (WandbSink(run_folder(one), one) for one in asked)
    assert (given_up.run.id, sink.run.id) == tuple(map(run_id, asked))
    sink.close()
    given_up.close()


def test_a_failure_of_wandb_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
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
