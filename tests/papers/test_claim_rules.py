"""The arithmetic behind verdicts, against other formulas for the same."""

import math

import pytest
import torch
import torch.nn.functional as F
from made_up import measured

from oversmoothing.papers.claims import centered_theory, contranorm_theory
from oversmoothing.papers.claims.centered_graphs import _margin
from oversmoothing.papers.claims.centered_tuned import _grows
from oversmoothing.papers.claims.contranorm_graphs import near
from oversmoothing.papers.claims.evidence import Cells
from oversmoothing.report.verdict import differ


def test_near_is_within_a_point_or_the_noise_of_the_mean() -> None:
    level, noisy = measured(70.0, 70.0), measured(66.0, 70.0, 74.0)  # 2·4/√3 = 4.62
    assert near(level, 70.9) and not near(level, 71.1)
    assert near(noisy, 74.5) and not near(noisy, 74.7)


def test_the_margin_adds_the_variances_of_both_means() -> None:
    assert _margin(3.0, measured(48.0, 52.0)) == pytest.approx(2 * math.sqrt(9 / 5 + 8 / 2))
    assert _margin(0.1, measured(50.0)) == 1.0


def test_a_gap_that_had_no_noise_grows_by_welchs_test_of_the_gap_after() -> None:
    flat, generator = measured(60.0, 60.0), torch.Generator().manual_seed(0)
    for _ in range(300):
        a = measured(*(2 + torch.randn(3, generator=generator)).tolist())
        b = measured(*torch.randn(4, generator=generator).tolist())
        assert _grows((flat, flat), (a, b), 1) is ((a.mean > b.mean) if differ(a, b) else None)


def test_the_fewest_seeds_of_a_cell_are_told() -> None:
    cells = Cells("one", {("", "a", ""): measured(1.0, 2.0), ("", "b", ""): measured(1.0)})
    assert cells.seeds == "1 seed a cell"


def test_attention_maps_are_torchs() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (6, 4), (4, 4), (4, 4)
    x, q, k = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes)
    expected = F.scaled_dot_product_attention(x @ q, x @ k, torch.eye(6).double())
    torch.testing.assert_close(centered_theory.attention(x, q, k), expected)


def test_the_bound_of_proposition_1_is_the_minimum_over_unit_vectors() -> None:
    """2 (u − ū)·(u − Āu), on a grid."""
    *_, (H, _) = contranorm_theory.draws(3)
    H = H[:3]  # its P has a negative eigenvalue
    angles = torch.linspace(0, math.pi, 600, dtype=torch.float64)
    a, b = torch.meshgrid(angles, angles, indexing="ij")
    u = torch.stack([a.sin() * b.cos(), a.sin() * b.sin(), a.cos()], -1).flatten(0, 1)
    moved = u - u @ contranorm_theory.softmax_map(H).mT
    lowest = float(2 * ((u - u.mean(-1, keepdim=True)) * moved).sum(-1).min())
    assert contranorm_theory.bounds(H) == pytest.approx(lowest, abs=1e-3) and lowest < -0.02
