"""Runs the package's kernels for GPUs in Triton's interpreter, on tensors of the CPU."""

import pytest

from oversmoothing.aggregators import centered, checks
from oversmoothing.lab.backbones import sparse
from oversmoothing.lab.tasks.wsss import par


def use_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every function with a kernel launch it; skips without Triton."""
    pytest.importorskip("triton")
    for module in (checks, centered, sparse, par):
        monkeypatch.setattr(module, "runs_triton", lambda *tensors: True)
