"""The process group of a command ends before the interpreter does."""

import os
import socket
import subprocess
import sys

PROCESS = """
import atexit, glob, torch
from torch.nn.parallel import DistributedDataParallel
from oversmoothing import distributed

def gloo():
    names = [open(path).read() for path in glob.glob("/proc/self/task/*/comm")]
    return [name for name in names if "gloo" in name]

def run():
    with distributed.group(torch.device("cpu")):
        model = DistributedDataParallel(torch.nn.Linear(6, 6))
        cycle = [model]
        cycle.append(cycle)
        model(torch.ones(1, 6)).sum().backward()
        assert gloo()

run()
atexit._run_exitfuncs()
assert not gloo(), gloo()
"""


def test_no_thread_of_gloo_outlives_the_group() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    shared = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", PROCESS]
    running = [subprocess.Popen(command, env={**shared, "RANK": str(rank)}) for rank in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
