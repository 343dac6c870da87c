"""The store: whole files or none, claims, checkpoints, and what damage does to them."""

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

from oversmoothing.errors import InputError
from oversmoothing.store.claims import Busy, claimed
from oversmoothing.store.files import remove_temporaries, write_atomically
from oversmoothing.store.recorder import Recorder, read_result, write_result


def test_a_checkpoint_comes_back_bit_equal(tmp_path: Path) -> None:
    state = {"w": torch.randn(4), "epoch": 3, "list": [1.5, "a"], "nested": {"g": torch.tensor(2)}}
    Recorder(tmp_path, [0]).save_checkpoint(state)
    loaded = Recorder(tmp_path, [0]).load_checkpoint()
    assert torch.equal(loaded["w"], state["w"]) and loaded["list"] == [1.5, "a"]
    assert loaded["epoch"] == 3 and torch.equal(loaded["nested"]["g"], state["nested"]["g"])


def test_a_kill_at_any_rename_leaves_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, real = Recorder(tmp_path, [0]), Path.replace
    run.save_checkpoint({"epoch": 0})

    def killed(self: Path, target: Path) -> Path:
        assert run.load_checkpoint() is not None and (tmp_path / "checkpoint.pt").exists()
        return real(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    for epoch in (1, 2):
        run.save_checkpoint({"epoch": epoch})
    assert run.load_checkpoint()["epoch"] == 2
    (tmp_path / "checkpoint.pt").unlink()
    assert run.load_checkpoint()["epoch"] == 1


def test_a_checkpoint_serves_only_its_own_seeds(tmp_path: Path) -> None:
    Recorder(tmp_path, [0, 1]).save_checkpoint({"epoch": 3})
    assert Recorder(tmp_path, [0, 1, 2]).load_checkpoint() is None


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
    with pytest.warns(UserWarning, match=r"metrics\.jsonl has lost lines that checkpoint\.pt"):
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


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = [f".checkpoint-fresh.pt.{ended.pid}", f".config.yaml.{os.getpid()}"]
    kept = [f".result.json.{os.getppid()}", ".note", "weights-seed0.pt"]
    for name in left + kept:
        (tmp_path / name).touch()
    with claimed(tmp_path):
        names = {path.name for path in tmp_path.iterdir()}
    assert names - {".lock", ".owner"} == set(kept)


def test_windows_is_not_asked_by_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signal 0 is Ctrl-C there; whose file it is stays unknown."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    (tmp_path / ".result.json.123456").touch()
    remove_temporaries(tmp_path)
    assert (tmp_path / ".result.json.123456").exists()


@pytest.mark.parametrize("size", [0, 7, 40])
@pytest.mark.parametrize("name", ["checkpoint.pt", "result.json"])
def test_a_corrupt_file_is_set_aside_with_a_warning(tmp_path: Path, name: str, size: int) -> None:
    run = Recorder(tmp_path, [0])
    run.save_checkpoint({"epoch": 3})
    write_result(tmp_path, {"seeds": {}, "text": "x" * 40})
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.warns(UserWarning, match=rf"{name} cannot be read .*set aside"):
        read = run.load_checkpoint() if name == "checkpoint.pt" else read_result(tmp_path)
    assert read is None and not path.exists() and path.with_name(f"{name}.corrupt").exists()


@pytest.mark.parametrize("text", ["[]", "{}", '{"seeds": 3}', ""])
def test_a_result_of_another_form_is_set_aside(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.warns(UserWarning, match="set aside"):
        assert read_result(tmp_path) is None


def test_a_checkpoint_with_code_in_it_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "owned"),)

    torch.save({"state": Evil(), "seeds": [0], "logged_bytes": 0}, tmp_path / "checkpoint.pt")
    with pytest.warns(UserWarning, match="set aside"):
        assert Recorder(tmp_path, [0]).load_checkpoint() is None
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


FULL_DISK = """
import resource, sys, numpy, torch
from pathlib import Path
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder, write_result
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder, kind = Path(sys.argv[1]), sys.argv[2]
run = Recorder(folder, [0])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    if kind == "result": write_result(folder, {"x": "y" * 10_000})
    if kind == "checkpoint": run.save_checkpoint({"w": torch.zeros(10_000)})
    if kind == "arrays": run.save_arrays("curves", x=numpy.random.rand(10_000))
    if kind == "log": [run.log(epoch=i, text="z" * 100) for i in range(100)]
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["result", "checkpoint", "arrays", "log"])
def test_a_full_disk_is_one_line(tmp_path: Path, kind: str) -> None:
    """A file-size limit makes the kernel refuse the write, as a full disk does."""
    words = [sys.executable, "-c", FULL_DISK, str(tmp_path), kind]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout and len(done.stdout.splitlines()) == 1
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"metrics.jsonl"}, "a half-written file stayed"


HOLDER = """
import sys, time
from pathlib import Path
from oversmoothing.store.claims import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_only_one_process_holds_a_run(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    free = threading.Event()

    def wait() -> None:
        with claimed(tmp_path, wait=True):
            free.set()

    waiting = threading.Thread(target=wait)
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(Busy, match=f"is being run by process {process.pid} on "):
            claimed(tmp_path).__enter__()
        waiting.start()
        assert not free.wait(0.3)
    finally:
        process.kill()  # like kill -9: the claim ends with its owner
        process.wait()
    assert free.wait(20)
    waiting.join()
    with claimed(tmp_path), pytest.raises(Busy, match=f"process {os.getpid()} "):
        claimed(tmp_path).__enter__()


def test_arrays_come_back(tmp_path: Path) -> None:
    path = Recorder(tmp_path, [0]).save_arrays("curves", rank=np.arange(5, dtype=np.int16))
    assert np.load(path)["rank"].tolist() == [0, 1, 2, 3, 4]


def test_files_are_as_open_as_the_users_umask_says(tmp_path: Path) -> None:
    write_result(tmp_path, {})
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "result.json").stat().st_mode & 0o777 == 0o666 & ~umask
