"""Kernels for GPUs, in Triton's interpreter, compute what torch computes on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from interpreted import use_interpreter

from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.overlap import _weights
from oversmoothing.lab.tasks.wsss.lattice import Lattice
from oversmoothing.lab.tasks.wsss.par import PAR


@pytest.mark.parametrize("fixed", [False, True])
def test_the_lattice(fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    features, values = torch.randn(2, 70, 5) / 2, torch.rand(2, 70, 3)
    features[0, 30:] = features[0, 0]  # points that share their lattice points
    expected = Lattice(features, fixed)(values)
    use_interpreter(monkeypatch)
    from oversmoothing.lab.tasks.wsss import lattice_kernels

    monkeypatch.setattr(lattice_kernels, "PROGRAMS", 5)
    torch.testing.assert_close(Lattice(features, fixed)(values), expected)


@pytest.mark.parametrize("size", [1e12, float("inf"), float("nan")])
def test_features_that_no_lattice_has_room_for(size: float) -> None:
    """On a GPU, an index out of bounds would end the process."""
    features = torch.randn(1, 20, 5)
    features[0, 3:] *= size
    assert Lattice(features, fixed=True)(torch.rand(1, 20, 3)).isnan().all()
    with pytest.raises(InputError):
        Lattice(features)


def test_pixel_adaptive_refinement(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    images, masks = (torch.rand(2, C, 17, 13).mT for C in (3, 9))
    images[0, :, :6] = 0.5  # σ is 0 in flat regions
    par = PAR(dilations=(1, 4), iterations=2)
    expected = par(images, masks), par.affinity(images)
    use_interpreter(monkeypatch)
    found = par(images, masks), par.affinity(images)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("aligned", [False, True])
def test_the_products_that_upsample_on_a_gpu_are_bilinear(aligned: bool) -> None:
    x, cpu = torch.rand(2, 3, 5, 7), torch.device("cpu")
    rows, columns = (_weights(*sides, aligned, cpu) for sides in ((5, 40), (7, 31)))
    expected = F.interpolate(x, (40, 31), mode="bilinear", align_corners=aligned)
    torch.testing.assert_close(rows @ (x @ columns.mT), expected)
