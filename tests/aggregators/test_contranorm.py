"""ContraNorm against its formula, written out in float64."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from tokens import random_tokens

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.contranorm_d import ContraNormD
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.metrics.smoothness import token_variance

N, C = 14, 6


tokens = partial(random_tokens, 3, N, C, seed=2)


def ring() -> Context:
    """A ring with self-loops."""
    i = torch.arange(N)
    edges = torch.stack([torch.cat([i, i, i]), torch.cat([i, (i + 1) % N, (i - 1) % N])])
    return Context(edges=edges, num_nodes=N)


def p_matrix(x: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    x_hat = x / x.norm(dim=-1, keepdim=True)
    return (x_hat @ x_hat.mT / temperature).softmax(dim=-1)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_both_forms(temperature: float) -> None:
    x = tokens()
    px = p_matrix(x, temperature) @ x
    plain = ContraNorm(C, 0.3, temperature, identity=False)(x, Context())
    identity = ContraNorm(C, 0.3, temperature, identity=True)(x, Context())
    assert torch.allclose(plain, x - 0.3 * px, atol=1e-12)
    assert torch.allclose(identity, 1.3 * x - 0.3 * px, atol=1e-12)


@pytest.mark.parametrize("n", [1, C, C + 1, N])
def test_few_tokens_and_many_are_pushed_by_the_same_rule(n: int) -> None:
    """Up to N = C through the N×N matrix, above without it: values and gradients of the formula."""
    x = tokens()[:, :n].clone().requires_grad_()
    found = ContraNorm(C, 0.3, 0.5)(x, Context())
    expected = 1.3 * x - 0.3 * p_matrix(x, 0.5) @ x
    upstream = tokens()[:, :n].cos()
    ours, theirs = (torch.autograd.grad(y, x, upstream)[0] for y in (found, expected))
    assert torch.allclose(found, expected, atol=1e-12)
    assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("n", [C, N])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_survives_norms_whose_squares_leave_its_range(
    n: int, printed: bool, autocast: bool
) -> None:
    x, layer = tokens()[:, :n] * 300, ContraNorm(C, 0.3, printed=printed)  # 300² is above 65504
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        found = layer(x.float() if autocast else x.half(), Context()).double()
    assert torch.allclose(found, layer(x, Context()), rtol=0, atol=2.0)


def test_a_token_of_zeros_stays_zero_and_finite() -> None:
    x = tokens()[:, :C].clone()
    x[:, 0] = 0
    assert torch.equal(ContraNorm(C, 0.3, identity=False)(x * 0, Context()), x * 0)
    assert ContraNorm(C, 0.3)(x, Context()).isfinite().all()


def test_scale_zero_is_the_identity_or_layernorm() -> None:
    x = tokens()
    assert torch.equal(ContraNorm(C, 0.0)(x, ring()), x)
    normed = ContraNorm(C, 0.0, identity=False, layernorm=True).double()(x, Context())
    assert torch.allclose(normed, F.layer_norm(x, (C,), eps=1e-6), atol=1e-12)


def test_graph_mask_hides_self_and_neighbours() -> None:
    x, context = tokens(), ring()
    i = torch.arange(N)
    apart = (i[:, None] - i).abs()
    near = torch.minimum(apart, N - apart) <= 1
    x_hat = x / x.norm(dim=-1, keepdim=True)
    similarity = (x_hat @ x_hat.mT).masked_fill(near, -torch.inf)
    expected = 1.5 * x - 0.5 * similarity.softmax(dim=-1) @ x
    assert torch.allclose(ContraNorm(C, 0.5)(x, context), expected, atol=1e-12)


@pytest.mark.parametrize("dual", [False, True])
def test_a_node_that_neighbours_everyone_stays_finite(dual: bool) -> None:
    """The authors' code has NaN here: a softmax over nothing."""
    hub = torch.stack([torch.zeros(N, dtype=torch.long), torch.arange(N)])
    edges = torch.cat([hub, hub.flip(0), torch.arange(N).expand(2, -1)], dim=1).unique(dim=1)
    context = Context(edges=edges, num_nodes=N)
    x = tokens().requires_grad_()
    out = ContraNorm(C, 0.5, dual=dual)(x, context)
    out.square().sum().backward()
    assert out.isfinite().all() and x.grad.isfinite().all()
    if not dual:
        assert torch.allclose(out[:, 0], 1.5 * x[:, 0])


@pytest.mark.parametrize("n", [C, N])
def test_the_printed_form_is_the_equation_of_the_paper(n: int) -> None:
    """Eq. 8, with all nodes of a graph; with x̂ for x and τ = 1 it is the form of the code."""
    x, tau = tokens()[:, :n], 0.4
    px = (x @ x.mT / tau).softmax(dim=-1) @ x
    out = ContraNorm(C, 0.3, tau, printed=True)(x, ring() if n == N else Context())
    assert torch.allclose(out, 1.3 * x - 0.3 / tau * px, atol=1e-12)
    unit = F.normalize(x, dim=-1)
    assert torch.allclose(ContraNorm(C, 0.3, printed=True)(unit), ContraNorm(C, 0.3)(unit))


def test_dual_adds_the_softmax_over_columns() -> None:
    x = tokens()
    x_hat = x / x.norm(dim=-1, keepdim=True)
    similarity = x_hat @ x_hat.mT
    both = similarity.softmax(dim=-1) + similarity.softmax(dim=-2)
    out = ContraNorm(C, 0.4, dual=True, identity=False)(x, Context())
    assert torch.allclose(out, x - 0.4 * both @ x, atol=1e-12)


def test_learnable_identity_is_sigma_x_minus_sigma_px() -> None:
    x = tokens()
    layer = ContraNorm(C, 0.5, learnable=True, positive=True).double()
    out = layer(x, Context())
    assert torch.allclose(out, 0.5 * (x - p_matrix(x) @ x), atol=1e-7)
    out.square().sum().backward()
    assert layer.scale.grad.abs().min() > 0


def test_pre_norm_uses_the_normalised_tokens_everywhere() -> None:
    x = tokens()
    x_hat = x / x.norm(dim=-1, keepdim=True)
    out = ContraNorm(C, 0.4, identity=False, pre_norm=True)(x, Context())
    assert torch.allclose(out, x_hat - 0.4 * p_matrix(x) @ x_hat, atol=1e-12)


def test_after_a_plain_layernorm_it_equals_the_first_version() -> None:
    """Rows are centered and divided by their norms, then x − s·Px: a reading of Table 5."""
    x = tokens() + 3
    rows = F.normalize(x - x.mean(dim=-1, keepdim=True), dim=-1)
    norm = LayerNorm(C, eps=0, affine=False)
    out = ContraNorm(C, 0.4, identity=False, pre_norm=True)(norm(x))
    assert torch.allclose(out, rows - 0.4 * p_matrix(rows) @ rows, atol=1e-12)


def test_raises_the_variance_of_similar_tokens() -> None:
    """Guo et al., Proposition 1: nearly collapsed tokens are spread out again."""
    x = tokens() * 0.01 + 1
    assert (token_variance(ContraNorm(C, 0.5)(x, Context())) > token_variance(x)).all()


def test_the_dual_form_is_its_formula_and_never_n_by_n() -> None:
    x = tokens()
    expected = F.layer_norm(x - 0.7 * x @ (x.mT @ x).softmax(dim=-1), (C,))
    assert torch.allclose(ContraNormD(C, 0.7).double()(x, Context()), expected, atol=1e-12)
    many = torch.randn(1, 300_000, C)  # an N×N matrix would take 360 GB
    assert ContraNormD(C)(many, Context()).isfinite().all()


def test_the_dual_form_with_normalised_tokens_is_its_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 14, 6, generator=generator, dtype=torch.float64)
    x_hat = F.normalize(x, dim=-1)
    p = (x_hat.mT @ x_hat / 0.5).softmax(dim=-1)
    layer = ContraNormD(6, 0.7, 0.5, normalize=True, identity=True, layernorm=False)
    assert torch.allclose(layer(x, Context()), 1.7 * x - 0.7 * x @ p, atol=1e-12)


@pytest.mark.parametrize("N", [4, 12])  # N ≤ C: the matrix is formed; else fused
@pytest.mark.parametrize("options", [{}, {"pre_norm": True}])
def test_a_zero_token_in_float16_leaves_the_others_finite(N: int, options: dict) -> None:
    x = torch.randn(1, N, 8, generator=torch.Generator().manual_seed(0))
    x[0, 0] = 0
    layer = ContraNorm(8, **options)
    torch.testing.assert_close(layer(x.half()).float(), layer(x), rtol=0, atol=0.02)
