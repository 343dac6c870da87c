"""The device of these tests: CUDA where there is one, else the pretend device."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def device() -> str:
    """``cuda``, or ``pretend`` where there is no GPU but a compiler."""
    if torch.cuda.is_available():
        return "cuda"
    import pretend

    if not pretend.compiler():
        pytest.skip("no GPU, and no g++ to build the pretend device")
    pretend.library()
    return "pretend"


@pytest.fixture(autouse=True)
def as_before(device: str) -> Iterator[None]:
    """Resets what a run and the pretend device set for the whole process."""
    torch.__future__.set_swap_module_params_on_conversion(device == "pretend")
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)
    torch.use_deterministic_algorithms(False)
