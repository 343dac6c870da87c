"""Uses real data if they exist, never the network, and a GPU only in tests/gpu."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared" / "data"

if "OVERSMOOTHING_GPU_TESTS" not in os.environ:  # the numbers in the tests are those of a CPU
    os.environ.setdefault("OVERSMOOTHING_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run on the CPU; Triton reads it when imported
for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # tests call make as a user does, also under make
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reaches for the network fails."""
    monkeypatch.delenv("OVERSMOOTHING_OFFLINE", raising=False)  # some tests set it
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: object) -> None:
        if self.family == socket.AF_UNIX:
            return connect(self, address)
        raise AssertionError(f"a test tried to reach {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def double() -> Iterator[None]:
    """New tensors are in float64."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of one process."""
    from torch import distributed

    monkeypatch.delenv("RANK", raising=False)  # processes need not come from torchrun
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the real data sets; tests that need them are skipped without."""
    root = Path(os.environ.get("DATA_ROOT") or SHARED).resolve()
    if not (root / "graphs").is_dir():
        pytest.skip("no real data: set DATA_ROOT")
    return root


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of generated images that tests and workers share; give it as ``paths.cache``."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "generated"
    folder.mkdir(exist_ok=True)
    return folder
