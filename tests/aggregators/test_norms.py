"""LayerNorm and PairNorm: parity with torch-geometric, and what they keep constant."""

import pytest
import torch
import torch_geometric.nn as pyg

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.errors import InputError


def tokens() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(20, 7, generator=generator, dtype=torch.float64) * 3 + 1


def test_layernorm_equals_torch_geometric() -> None:
    x = tokens()
    ours, theirs = LayerNorm(7).double(), pyg.LayerNorm(7, mode="node").double()
    assert torch.allclose(ours(x, Context()), theirs(x), atol=1e-12)


@pytest.mark.parametrize("scale", [0.2, 1.0])
@pytest.mark.parametrize("mode", ["PN", "PN-SI"])
def test_pairnorm_equals_torch_geometric(mode: str, scale: float) -> None:
    x = tokens()
    theirs = pyg.PairNorm(scale, scale_individually=mode == "PN-SI", eps=1e-6)(x)
    # they add eps outside the root for PN-SI, the authors inside: 1e-6 relative
    assert torch.allclose(PairNorm(mode, scale)(x, Context()), theirs, atol=1e-6)


def test_pairnorm_keeps_the_total_pairwise_distance() -> None:
    """Zhao and Akoglu, Eq. 9: Σ_ij ‖x_i − x_j‖² = 2 n² s² whatever the input."""
    for x in (tokens(), tokens() * 50, tokens().exp()):
        out = PairNorm("PN", scale=2.0)(x, Context())
        assert torch.cdist(out, out).square().sum().item() == pytest.approx(2 * 20**2 * 4, rel=1e-5)


def test_pn_si_gives_every_row_the_norm_s() -> None:
    norms = PairNorm("PN-SI", scale=0.5)(tokens(), Context()).norm(dim=-1)
    assert torch.allclose(norms, torch.full_like(norms, 0.5), atol=1e-6)


def test_pn_scs_subtracts_the_mean_of_the_input() -> None:
    x = tokens()
    expected = 1.5 * x / x.norm(dim=-1, keepdim=True) - x.mean(dim=0)
    assert torch.allclose(PairNorm("PN-SCS", scale=1.5)(x, Context()), expected, atol=1e-6)


def test_scale_must_be_positive() -> None:
    with pytest.raises(InputError, match=r"aggregator\.scale"):
        PairNorm(scale=0)
