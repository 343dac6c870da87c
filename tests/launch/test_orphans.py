"""Commands that are stopped, and processes that were started by one that gets SIGKILL."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import all_ended, command, with_mark

from oversmoothing.lab.launch.script import STOPPED

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
SPAWNED = """
import multiprocessing, time
from oversmoothing.lab.processes import follow_parent

def work():
    follow_parent()
    time.sleep(600)

if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=work)
    worker.start()
    worker.join()
"""
POOL = """
import signal, time
from oversmoothing.lab import processes

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    processes.IMPORTED = ["torch"]
    [*processes.in_processes(time.sleep, [600, 600], 2, print)]
"""
LOADING = """
import time
from oversmoothing.lab import processes
from oversmoothing.lab.data.loading import read_ahead

def train(_):
    [*read_ahead(time.sleep, [0.1] * 6000, 2)]

if __name__ == "__main__":
    processes.IMPORTED = ["oversmoothing.lab.data.loading"]
    [*processes.in_processes(train, [0], 2, print)]
"""
STARTED = {POOL: 4, LOADING: 5, SPAWNED: 2}  # with a fork server and trackers of resources


@linux
@pytest.mark.parametrize(
    ("script", "number"),
    [
        (POOL, signal.SIGKILL),
        (POOL, signal.SIGINT),
        (LOADING, signal.SIGKILL),
        (SPAWNED, signal.SIGKILL),
    ],
)
def test_workers_end_with_a_process_that_is_stopped(
    tmp_path: Path, script: str, number: signal.Signals
) -> None:
    """Only the process itself gets the signal, not its group, as from an IDE or a scheduler."""
    path, mark = tmp_path / "script.py", str(tmp_path)
    path.write_text(script)
    process = subprocess.Popen([sys.executable, str(path)], env={**os.environ, "MARK": mark})
    while len(with_mark(mark)) < 1 + STARTED[script]:
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(1)  # they begin to follow
    process.send_signal(number)
    process.wait(timeout=60)
    assert all_ended(mark)


@linux
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_command_says_so(tmp_path: Path, number: signal.Signals, code: int) -> None:
    words = ["trainer.epochs=1000000", "trainer.eval_every=1", "data.num_nodes=400", "seeds=[0]"]
    words += ["logger=none", "threads=1", "checkpoint_seconds=0", f"paths.outputs={tmp_path}"]
    process = command(["train.py", *words])
    while not list(tmp_path.glob("nodes-*/s*/checkpoint.pt")):
        assert process.running()
        time.sleep(0.1)
    process.send(number)
    ended, _, said = process.end()
    assert said.splitlines()[-1] == STOPPED
    assert ended == code and list(tmp_path.glob("nodes-*/s*/checkpoint.pt"))


TOLD = """
import signal, time
from oversmoothing.lab import processes
from oversmoothing.lab.data.loading import read_ahead
from oversmoothing.lab.launch.script import run_script

def main():
    {}

if __name__ == "__main__":
    processes.IMPORTED = ["torch"]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    run_script(main)
"""
JOBS = "[*processes.in_processes(time.sleep, [600, 600], 2, print)]"
READ = "[*read_ahead(time.sleep, [0.1] * 6000, 2)]"


@linux
@pytest.mark.parametrize(
    ("body", "number", "code"),
    [(JOBS, signal.SIGINT, 130), (READ, signal.SIGINT, 130), (READ, signal.SIGTERM, 143)],
)
def test_a_signal_to_all_processes_leaves_one_line(
    tmp_path: Path, body: str, number: signal.Signals, code: int
) -> None:
    """As Ctrl-C in a terminal, here while a fork server imports torch, and as from timeout."""
    path, mark = tmp_path / "script.py", str(tmp_path)
    path.write_text(TOLD.format(body))
    options = {"env": {**os.environ, "MARK": mark}, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, str(path)], **options, start_new_session=True)
    while len(with_mark(mark)) < 3:
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(0.5)
    os.killpg(process.pid, number)
    said = process.communicate(timeout=60)[1].decode()
    assert said == "stopped\n", said
    assert process.returncode == code and all_ended(mark)
