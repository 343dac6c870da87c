"""The device of these tests: CUDA if there is a GPU, else the pretend device."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def device() -> str:
    """``cuda`` or ``pretend``, in the process of ``test_alone.py``."""
    if "OVERSMOOTHING_GPU_TESTS" not in os.environ:
        pytest.skip("test_alone.py runs this in a process that sees the GPU")
    if torch.cuda.is_available():
        return "cuda"
    import pretend

    if not pretend.compiler():
        pytest.skip("no GPU, and no g++ to build the pretend device")
    pretend.library()
    return "pretend"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Resets what a run sets for the whole process."""
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
