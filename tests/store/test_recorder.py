"""The store: whole files or none, claims, checkpoints, and what damage does to them."""

import errno
import json
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from oversmoothing.errors import InputError
from oversmoothing.lab.store import checkpoints
from oversmoothing.lab.store.files import (
    remove_temporaries,
    replacing,
    write_atomically,
    write_text,
)
from oversmoothing.lab.store.locks import Busy, locked
from oversmoothing.lab.store.lookup import find
from oversmoothing.lab.store.recorder import Recorder, read_result, write_result


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


def test_the_checkpoint_of_many_seeds_waits_for_them(tmp_path: Path) -> None:
    many = list(range(120))
    Recorder(tmp_path, many).save_checkpoint({"epoch": 3})
    Recorder(tmp_path, [200]).load_checkpoint()
    Recorder(tmp_path, [200]).save_checkpoint({"epoch": 7})
    assert Recorder(tmp_path, many).load_checkpoint() == {"epoch": 3}
    Recorder(tmp_path, [200]).load_checkpoint()
    checkpoints.remove_of(tmp_path, many[:-1])
    assert Recorder(tmp_path, many).load_checkpoint() == {"epoch": 3}
    Recorder(tmp_path, [200]).load_checkpoint()
    checkpoints.remove_of(tmp_path, many)
    assert Recorder(tmp_path, many).load_checkpoint() is None


def test_a_word_that_can_be_no_file_names_no_run() -> None:
    for word in ("a**b", "*", "x" * 300):
        with pytest.raises(InputError, match="no such run"):
            find(word)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = platform.node()
    left = [f".checkpoint-fresh.pt.{host}.{ended.pid}", f".config.yaml.{host}.{os.getpid()}"]
    other = f".config.yaml.other-{host}.{ended.pid}"  # of another machine, may be in work there
    kept = [f".result.json.{host}.{os.getppid()}", other, ".note", "weights-seed0.pt"]
    for name in left + kept:
        (tmp_path / name).touch()
    write_text(tmp_path / "config.yaml", "new")  # removes those of its own name
    assert not (tmp_path / left[1]).exists() and (tmp_path / left[0]).exists()
    with locked(tmp_path):
        names = {path.name for path in tmp_path.iterdir()}
    assert names - {".lock", ".owner"} == {*kept, "config.yaml"}


KILLED = """
import os, sys
from pathlib import Path
from oversmoothing.lab.store.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.mkdir()
    (temporary / "half").touch()
    os._exit(9)
"""


def test_a_folder_that_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "new")])
    assert [path.name[:5] for path in tmp_path.iterdir()] == [".new."]
    with replacing(tmp_path / "new") as temporary:
        temporary.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["new"] and not [
        *(tmp_path / "new").iterdir()
    ]


def test_windows_is_not_asked_by_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signal 0 is Ctrl-C there; whose file it is stays unknown."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    left = tmp_path / f".result.json.{platform.node()}.123456"
    left.touch()
    remove_temporaries(tmp_path)
    assert left.exists()


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
from oversmoothing.lab.store.recorder import Recorder, write_result
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
from oversmoothing.lab.store.locks import locked
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
        with pytest.raises(Busy, match=f"is being run by process {process.pid} on "):
            locked(tmp_path).__enter__()
        waiting.start()
        assert not free.wait(0.3)
    finally:
        process.kill()  # like kill -9: the claim ends with its owner
        process.wait()
    assert free.wait(20)
    waiting.join()
    with locked(tmp_path), pytest.raises(Busy, match=f"process {os.getpid()} "):
        locked(tmp_path).__enter__()


def test_arrays_come_back(tmp_path: Path) -> None:
    path = Recorder(tmp_path, [0]).save_arrays("curves", rank=np.arange(5, dtype=np.int16))
    assert np.load(path)["rank"].tolist() == [0, 1, 2, 3, 4]


def test_files_are_as_open_as_the_users_umask_says(tmp_path: Path) -> None:
    write_result(tmp_path, {})
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "result.json").stat().st_mode & 0o777 == 0o666 & ~umask
