"""The device of these tests: CUDA if there is a GPU, else the pretend device."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
ALONE = "OVERSMOOTHING_PRETEND"  # set in the process that has the pretend device


@pytest.fixture(scope="session")
def device() -> str:
    """``cuda``, or ``pretend`` in the process of ``test_pretend.py``."""
    if torch.cuda.is_available():
        return "cuda"
    if ALONE not in os.environ:
        pytest.skip("no GPU; test_pretend.py runs this on the pretend device")
    import pretend

    pretend.library()
    return "pretend"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Resets what a run sets for the whole process."""
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
