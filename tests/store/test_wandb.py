"""The W&B copy of a run, offline: what `metrics.jsonl` holds, no more and no less, under its id."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from oversmoothing.errors import InputError
from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.identity import run_id
from oversmoothing.lab.store.wandb_sink import WandbSink, final_numbers, flatten, read_lines

pytest.importorskip("wandb")

ROOT = Path(__file__).parents[2]
TINY = ["data.num_nodes=400", "trainer.epochs=20", "trainer.eval_every=5", "seeds=[0,3]"]


def config(outputs: Path, *overrides: str):
    return compose_config([*TINY, f"paths.outputs={outputs}", "threads=1", *overrides])


@pytest.fixture(autouse=True)
def no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes accounts and settings of W&B from the environment."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run that W&B was never told of."""
    asked = config(tmp_path_factory.mktemp("outputs"), "logger=none")
    execute(asked)
    return run_folder(asked)


def records(folder: Path) -> Iterator:
    """All records of a run folder's only offline segment.

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


def items(pairs) -> dict:
    return {pair.key or "/".join(pair.nested_key): json.loads(pair.value_json) for pair in pairs}


def history(folder: Path) -> list[dict]:
    """The logged rows in the order of their steps, without W&B's own clock."""
    rows = [items(r.history.item) for r in records(folder) if r.HasField("history")]
    kept = [{k: v for k, v in row.items() if k not in ("_runtime", "_timestamp")} for row in rows]
    return sorted(kept, key=lambda row: row["_step"])


def expected_rows(folder: Path) -> list[dict]:
    lines = read_lines(folder / "metrics.jsonl")
    return [{**flatten(line), "_step": step} for step, line in enumerate(lines)]


def replay(*words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "scripts/wandb_replay.py", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_flatten_names_a_value_a_seed_and_loses_nothing() -> None:
    line = {"seeds": [0, 3], "epoch": 20, "loss": [0.5, 0.25], "gammas": [1, 2, 3]}
    expected = {"epoch": 20, "loss/seed0": 0.5, "loss/seed3": 0.25, "gammas": [1, 2, 3]}
    assert flatten(line) == expected


def test_flatten_of_one_seed_equals_its_part_of_many() -> None:
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
    folder = run_folder(asked)
    assert history(folder) == expected_rows(folder) and len(history(folder)) == 4
    summaries = [
        item.key for r in records(folder) if r.HasField("summary") for item in r.summary.update
    ]
    assert {"result/test_accuracy/mean", "result/test_accuracy/seed0"} <= {*summaries}
    (run,) = [r.run for r in records(folder) if r.HasField("run")]
    assert run.run_id == run_id(asked) and run.project == "oversmoothing"


def test_a_run_has_an_entry_of_its_own_beside_one_that_failed(tmp_path: Path) -> None:
    first, second = config(tmp_path / "a"), config(tmp_path / "b", "backbone.depth=3")
    given_up = WandbSink(run_folder(first), first)  # and never closed, as after an error
    sink = WandbSink(run_folder(second), second)
    assert (given_up.run.id, sink.run.id) == (run_id(first), run_id(second))
    sink.close()
    given_up.close()


def test_a_resumed_run_repeats_no_row(tmp_path: Path, finished: Path) -> None:
    """The first life logged past its checkpoint; the second cuts the file and logs those anew."""
    path = tmp_path / "metrics.jsonl"
    lines = (finished / "metrics.jsonl").read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]))
    sink = WandbSink(tmp_path, config(tmp_path))
    path.write_text("".join(lines[:1]))
    for line in lines[1:]:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
        sink(json.loads(line))
    sink.close()
    assert history(tmp_path) == expected_rows(finished)


def test_a_resumed_run_with_nothing_left_to_log_is_whole(tmp_path: Path, finished: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes((finished / "metrics.jsonl").read_bytes())
    WandbSink(tmp_path, config(tmp_path)).close()
    assert history(tmp_path) == expected_rows(finished)


def test_online_no_row_is_sent_twice(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has two rows of the run, and stores all further rows."""
    sent = []
    server = SimpleNamespace(
        starting_step=2,
        log=lambda row, step: sent.append({**row, "_step": step}),
        finish=lambda: None,
    )
    monkeypatch.setattr("wandb.init", lambda **_: server)
    (tmp_path / "metrics.jsonl").write_bytes((finished / "metrics.jsonl").read_bytes())
    WandbSink(tmp_path, config(tmp_path), mode="online").close()
    assert sent == expected_rows(finished)[2:]


def test_replay_sends_the_good_and_names_the_bad(finished: Path) -> None:
    """One line for each damaged folder, exit code 2, and the whole run all the same."""
    bad = finished.parent / "bad"
    bad.mkdir()
    (bad / "config.yaml").write_bytes((finished / "config.yaml").read_bytes())
    (bad / "metrics.jsonl").write_text((finished / "metrics.jsonl").read_text() + '{"seeds": [0')
    done = replay(bad, finished.parent / "nothing", finished, "--project", "mine")
    assert done.returncode == 2
    errors = done.stderr.splitlines()
    assert len(errors) == 2 and "line 5" in errors[0] and "nothing" in errors[1]
    assert history(finished) == expected_rows(finished)
    (run,) = [r.run for r in records(finished) if r.HasField("run")]
    assert finished.name.endswith(run.run_id) and run.project == "mine"
    updates = [items(r.summary.update) for r in records(finished) if r.HasField("summary")]
    result = json.loads((finished / "result.json").read_text())
    assert final_numbers(result).items() <= {k: v for u in updates for k, v in u.items()}.items()


def test_online_without_login_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(InputError, match=r"mode=online: .*wandb login.*mode=offline") as raised:
        WandbSink(tmp_path, config(tmp_path), mode="online")
    assert "\n" not in str(raised.value)


def test_a_refused_project_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="logger.project=a/b: W&B refused .*; choose another"):
        WandbSink(tmp_path, config(tmp_path), project="a/b")
