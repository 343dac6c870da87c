"""Runs train.py in separate processes, one of which is killed during the training."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]


def train(*words: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen:
    command = [sys.executable, *launcher, "train.py", *words]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def train_by_two(*words: str) -> None:
    """Runs a training by two processes under torchrun to its end."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    process = train(*words, launcher=launcher)
    said = process.communicate(timeout=300)
    assert process.returncode == 0, said


def with_mark(mark: str) -> set[int]:
    """Living processes whose environment has MARK=<mark>, as those that such a process starts."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is somebody else's
            if f"MARK={mark}\0".encode() in (path / "environ").read_bytes():
                found.add(int(path.name))
    return found


def all_ended(mark: str, seconds: float = 20) -> bool:
    """Whether all processes with a mark end by themselves; those that do not are killed."""
    limit = time.monotonic() + seconds
    while with_mark(mark) and time.monotonic() < limit:
        time.sleep(0.1)
    left = with_mark(mark)
    for number in left:
        os.kill(number, signal.SIGKILL)
    return not left
