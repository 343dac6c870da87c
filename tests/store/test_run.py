"""The folder of a run: whole files or none, a lock, and a log and a checkpoint for each group."""

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from run_log import log_lines

from oversmoothing.errors import InputError
from oversmoothing.lab.store import run as store_run
from oversmoothing.lab.store.files import write_atomically, write_text
from oversmoothing.lab.store.results import read_result, write_result
from oversmoothing.lab.store.run import Busy, Recorder, group_name, locked


def test_a_checkpoint_comes_back_bit_equal(tmp_path: Path) -> None:
    state = {"w": torch.randn(4), "epoch": 3, "list": [1.5, "a"], "nested": {"g": torch.tensor(2)}}
    Recorder(tmp_path, [0]).save_checkpoint(state)
    loaded = Recorder(tmp_path, [0]).load_checkpoint()
    assert torch.equal(loaded["w"], state["w"]) and loaded["list"] == [1.5, "a"]
    assert loaded["epoch"] == 3 and torch.equal(loaded["nested"]["g"], state["nested"]["g"])


def test_the_log_is_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    run = Recorder(tmp_path, [0])
    run.log(epoch=1)
    run.save_checkpoint({"epoch": 1})
    run.log(epoch=2)
    run.log_file.open("a").write('{"epoch": 3, "half a li')  # killed in mid-write
    Recorder(tmp_path, [0]).load_checkpoint()
    assert log_lines(tmp_path) == [{"seeds": [0], "epoch": 1}]
    with pytest.warns(UserWarning, match="not used, since it was made elsewhere"):
        run.start_over("it was made elsewhere")
    assert log_lines(tmp_path) == []


def test_without_a_terminal_log_lines_are_printed(tmp_path: Path, capsys) -> None:
    run = Recorder(tmp_path / "nodes-cora-1a", [0, 1])
    run.log(epoch=1, loss=[9.0, 9.0])  # no training is shown
    with run.progress(40, "epoch") as bar, pytest.MonkeyPatch.context() as patch:
        run.log(epoch=20, loss=[1.0, 2.0], lr=0.1, layers=[{"cosine": [0.5, 0.9]}] * 2)
        run.log(epoch=30, loss=[0.0, 0.0])  # within a second
        patch.setattr(store_run, "SILENCE", 0.0)
        bar.update(31)
    assert capsys.readouterr().err == (
        "nodes-cora-1a/s0-1: epoch 20 of 40: loss 1.5, lr 0.1, cosine 0.5 -> 0.9\n"
        "1a/s0-1: epoch 31 of 40\n"
    )


def test_groups_of_seeds_share_nothing(tmp_path: Path) -> None:
    """Some are stopped, others begin and end in between; also those that have seeds in common."""
    groups = ([0], [1], [0, 1], [1, 0], [0, 1, 2, 3, 4], [*range(0, 240, 2)], [*range(0, 242, 2)])
    assert [*map(group_name, groups[:5])] == ["s0", "s1", "s0-1", "s1_0", "s0-4"]
    assert group_name([0, 2, 3]) == "s0_2-3"
    for number, seeds in enumerate(groups):
        run = Recorder(tmp_path, seeds)
        assert run.load_checkpoint() is None
        run.log(epoch=number)
        run.save_checkpoint({"epoch": number})
    Recorder(tmp_path, [1]).end()
    for number, seeds in enumerate(groups):
        run = Recorder(tmp_path, seeds)
        assert run.load_checkpoint() == (None if seeds == [1] else {"epoch": number})
        assert run.log_file.read_text() == (
            "" if seeds == [1] else json.dumps({"seeds": seeds, "epoch": number}) + "\n"
        )


@pytest.mark.parametrize("size", [0, 7, 40])
@pytest.mark.parametrize("name", ["checkpoint.pt", "result.json"])
def test_a_corrupt_file_is_set_aside_with_a_warning(tmp_path: Path, name: str, size: int) -> None:
    run = Recorder(tmp_path, [0])
    run.save_checkpoint({"epoch": 3})
    write_result(tmp_path, {"seeds": {}, "text": "x" * 40})
    path = run.checkpoint if name == "checkpoint.pt" else tmp_path / name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.warns(UserWarning, match=rf"{name} cannot be read .*set aside"):
        read = run.load_checkpoint() if name == "checkpoint.pt" else read_result(tmp_path)
    assert read is None and not path.exists() and path.with_name(f"{name}.corrupt").exists()


def test_a_checkpoint_with_code_in_it_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "owned"),)

    run = Recorder(tmp_path, [0])
    run.checkpoint.parent.mkdir()
    torch.save({"state": Evil(), "logged_bytes": 0, "data": None}, run.checkpoint)
    with pytest.warns(UserWarning, match="set aside"):
        assert run.load_checkpoint() is None
    assert not (tmp_path / "owned").exists()


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_result(tmp_path, {"id": "old"})

    def full(file: object) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match=r"result\.json: cannot be written \(No space left"):
        write_atomically(path, full)
    assert json.loads(path.read_text()) == {"id": "old"}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


HOLDER = """
import sys, time
from pathlib import Path
from oversmoothing.lab.store.run import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_only_one_process_holds_a_run(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    free = threading.Event()

    def wait() -> None:
        with locked(tmp_path, wait=True):
            free.set()

    waiting = threading.Thread(target=wait)
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(Busy, match="is being run by another process"):
            locked(tmp_path).__enter__()
        waiting.start()
        assert not free.wait(0.3)
    finally:
        process.kill()  # like kill -9: the lock ends with its owner
        process.wait()
    assert free.wait(20)
    waiting.join()
    with locked(tmp_path), pytest.raises(Busy):
        locked(tmp_path).__enter__()


def test_files_are_whole_and_as_open_as_the_users_umask_says(tmp_path: Path) -> None:
    path = Recorder(tmp_path, [0]).save_arrays("curves", rank=np.arange(5, dtype=np.int16))
    assert np.load(path)["rank"].tolist() == [0, 1, 2, 3, 4]
    write_text(tmp_path / "note", "γ")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "note").stat().st_mode & 0o777 == 0o666 & ~umask
