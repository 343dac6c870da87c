"""The log of a run: it agrees with the checkpoint, also after a kill or a loss of power."""

import errno
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from oversmoothing.errors import InputError
from oversmoothing.lab.store import checkpoints
from oversmoothing.lab.store.recorder import Recorder


def test_the_log_is_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    run = Recorder(tmp_path, [0])
    run.log(epoch=1)
    run.save_checkpoint({"epoch": 1})
    run.log(epoch=2)
    (tmp_path / "metrics.jsonl").open("a").write('{"epoch": 3, "half a li')  # killed in mid-write
    Recorder(tmp_path, [0]).load_checkpoint()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"seeds": [0], "epoch": 1}]


def test_without_a_checkpoint_the_log_keeps_only_stored_results(tmp_path: Path) -> None:
    run = Recorder(tmp_path, [0])
    run.log(epoch=1)
    stored = (tmp_path / "metrics.jsonl").stat().st_size
    run.log(epoch=2)
    Recorder(tmp_path, [5], logged_bytes=stored).load_checkpoint()
    assert (tmp_path / "metrics.jsonl").stat().st_size == stored


def test_seeds_that_wait_for_others_lose_neither_state_nor_log(tmp_path: Path) -> None:
    """Seed 0 is stopped, seed 1 trains and is stopped, seed 0 ends, seed 1 ends."""
    log = tmp_path / "metrics.jsonl"

    def begun(seed: int, stored: int = 0) -> tuple[Recorder, dict | None]:
        run = Recorder(tmp_path, [seed], logged_bytes=stored)
        return run, run.load_checkpoint()

    for seed in (0, 1):
        run, state = begun(seed)
        assert state is None
        run.log(epoch=1)
        run.save_checkpoint({"epoch": 1, "of": seed})
        run.log(epoch=2)  # after the checkpoint: it comes again
    run, state = begun(0)
    assert state == {"epoch": 1, "of": 0}
    run.log(epoch=2)
    checkpoints.remove_of(tmp_path, [0])
    run, state = begun(1, log.stat().st_size)
    assert state == {"epoch": 1, "of": 1}
    run.save_checkpoint({"epoch": 1, "of": 1})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines == [{"seeds": [s], "epoch": e} for s, e in ((0, 1), (0, 2), (1, 1))]
    assert begun(1, 0)[1] == {"epoch": 1, "of": 1}
    begun(0)
    checkpoints.remove_of(tmp_path, [0, 1])
    assert not [*tmp_path.glob("*.pt")]


def with_two_checkpoints(folder: Path) -> bytes:
    """Logs and saves three times; returns the log at the second checkpoint."""
    run, logs = Recorder(folder, [0]), []
    for epoch in range(3):
        run.log(epoch=epoch)
        logs.append((folder / "metrics.jsonl").read_bytes())
        run.save_checkpoint({"epoch": epoch})
    return logs[1]


def test_a_log_shorter_than_its_checkpoint_goes_back_to_the_one_before(tmp_path: Path) -> None:
    """A loss of power can take the end of a file that was not flushed."""
    kept, log = with_two_checkpoints(tmp_path), tmp_path / "metrics.jsonl"
    log.write_bytes(kept + b'{"seeds": [0], "ep')
    with pytest.warns(
        UserWarning, match=r"metrics\.jsonl has lost lines that belong to checkpoint\.pt"
    ):
        assert Recorder(tmp_path, [0]).load_checkpoint() == {"epoch": 1}
    assert log.read_bytes() == kept


def test_a_log_without_its_lines_starts_anew(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(with_two_checkpoints(tmp_path)[:10] + b"\0" * 200)
    with pytest.warns(UserWarning, match="has lost lines"):
        assert Recorder(tmp_path, [0]).load_checkpoint() is None
    assert log.read_bytes() == b""


def test_a_log_that_lost_lines_of_results_keeps_the_others(tmp_path: Path) -> None:
    run = Recorder(tmp_path, [0])
    for epoch in range(3):
        run.log(epoch=epoch)
    log = tmp_path / "metrics.jsonl"
    lines, stored = log.read_bytes().splitlines(keepends=True), log.stat().st_size
    log.write_bytes(lines[0] + b'{"seeds": [5], "epoch": 1}\n' + lines[1][:-3])
    with pytest.warns(UserWarning, match="lost lines of finished seeds"):
        Recorder(tmp_path, [5], logged_bytes=stored).load_checkpoint()
    assert log.read_bytes() == lines[0]


@pytest.mark.parametrize("later", [Recorder.logged, lambda run: run.log(epoch=1)])
def test_a_log_that_vanishes_in_the_middle_of_a_run_is_named_once(
    tmp_path: Path, later: Callable[[Recorder], object]
) -> None:
    run, log = Recorder(tmp_path, [0]), tmp_path / "metrics.jsonl"
    run.log(epoch=0)
    log.unlink()
    with pytest.warns(UserWarning, match=r"metrics\.jsonl has lost lines"):
        later(run)
    with warnings.catch_warnings(action="error"):
        run.log(epoch=2)
        assert run.logged() == log.stat().st_size


def test_a_checkpoint_that_vanishes_or_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is written, or one line says why not; the one before stays readable."""
    run, newest = Recorder(tmp_path, [0]), tmp_path / "checkpoint.pt"
    for epoch in range(3):
        run.save_checkpoint({"epoch": epoch})
        if epoch == 1:
            newest.unlink()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        patch.setattr(Path, "replace", refuse)
        patch.setattr("oversmoothing.lab.store.checkpoints.write", lambda *_: None)
        with pytest.raises(InputError, match=r"checkpoint\.pt: cannot be written"):
            run.save_checkpoint({"epoch": 3})
    assert run.load_checkpoint() == {"epoch": 2}


def test_the_log_is_on_the_disk_before_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, synced, real = Recorder(tmp_path, [0]), [], os.fsync

    def fsync(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").resolve().name)
        real(number)

    run.log(epoch=0)
    monkeypatch.setattr(os, "fsync", fsync)
    run.save_checkpoint({"epoch": 0})
    assert synced[0] == "metrics.jsonl" and len(synced) == 2
