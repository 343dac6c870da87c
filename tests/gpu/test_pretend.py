"""Runs the tests of devices on the pretend device, if there is no GPU.

They need a process of their own: torch counts the devices at the first backward pass.
"""

import os
import subprocess
import sys
from pathlib import Path

import pretend
import pytest
import torch

HERE = Path(__file__).parent


@pytest.mark.skipif(torch.cuda.is_available(), reason="the tests run on the GPU")
@pytest.mark.skipif(not pretend.compiler(), reason="no g++ to build the pretend device")
def test_the_pretend_device() -> None:
    own = ["--ignore", __file__, "-q", "-p", "no:xdist"]
    words = [sys.executable, "-m", "pytest", HERE, *own]
    env = os.environ | {"OVERSMOOTHING_PRETEND": "1"}
    done = subprocess.run(words, env=env, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
