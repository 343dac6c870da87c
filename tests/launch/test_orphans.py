"""Commands that are stopped, and processes that were started by one that gets SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import ROOT, all_ended, with_mark

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
SERVED = """
import multiprocessing
import time
from oversmoothing.lab.processes import follow_parent

def work(started):
    follow_parent()
    time.sleep(1)
    started.set()
    time.sleep(600)

if __name__ == "__main__":
    served = multiprocessing.get_context("forkserver")
    started = served.Event()
    worker = served.Process(target=work, args=(started,))
    worker.start()
    while not started.wait(0.1):
        assert worker.is_alive()
    worker.join()
"""
POOL = """
import signal, time
from oversmoothing.lab.launch import command as attempts

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    attempts.attempt = time.sleep
    attempts.run_all([600, 600], jobs=2)
"""


def started(mark: str, *command: str) -> subprocess.Popen:
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "MARK": mark}, stdout=subprocess.PIPE, text=True
    )


@linux
@pytest.mark.parametrize(
    ("script", "workers", "number"),
    [(POOL, 2, signal.SIGKILL), (POOL, 2, signal.SIGINT), (SERVED, 3, signal.SIGKILL)],
)
def test_workers_end_with_a_process_that_is_stopped(
    tmp_path: Path, script: str, workers: int, number: signal.Signals
) -> None:
    """Only the process itself gets the signal, not its group, as from an IDE or a scheduler."""
    path = tmp_path / "script.py"
    path.write_text(script)
    process = started(str(tmp_path), sys.executable, str(path))
    while len(with_mark(str(tmp_path))) < 1 + workers:
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    process.wait(timeout=60)
    assert all_ended(str(tmp_path))


@linux
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_a_stopped_command_says_so(tmp_path: Path, number: signal.Signals, code: int) -> None:
    words = ["trainer.epochs=1000000", "trainer.eval_every=1", "data.num_nodes=400", "seeds=[0]"]
    words += ["logger=none", "threads=1", "checkpoint_seconds=0", f"paths.outputs={tmp_path}"]
    command = [sys.executable, "train.py", *words]
    before = signal.signal(number, signal.SIG_DFL)  # a shell's background jobs ignore SIGINT
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    signal.signal(number, before)
    while not list(tmp_path.glob("nodes-*/s*/checkpoint.pt")):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(number)
    _, said = process.communicate()
    *progress, last = said.splitlines()
    assert last == "stopped; the same command continues from the last checkpoints"
    assert all(": epoch " in line for line in progress)
    assert process.returncode == code and list(tmp_path.glob("nodes-*/s*/checkpoint.pt"))
