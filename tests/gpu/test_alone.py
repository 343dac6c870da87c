"""Runs the other tests of this folder in a process of their own.

It sees the GPU, which is hidden from the other tests. If there is none, it has the pretend device,
which torch must know before the first backward pass.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_the_device_gives_the_numbers_of_the_cpu() -> None:
    words = [sys.executable, "-m", "pytest", HERE, "--ignore", __file__, "-p", "no:xdist"]
    env = os.environ | {"OVERSMOOTHING_GPU_TESTS": "1"}
    visible = env.pop("OVERSMOOTHING_GPUS")
    del env["TRITON_INTERPRET"]
    env |= {"CUDA_VISIBLE_DEVICES": visible}
    if visible == "all":
        del env["CUDA_VISIBLE_DEVICES"]
    done = subprocess.run(words, env=env, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    if " passed" not in done.stdout:
        pytest.skip("no GPU, and no g++ to build the pretend device")
