"""ContraNorm against its formula, written out in float64."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from tokens import random_tokens

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.contranorm_d import ContraNormD
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


@pytest.mark.parametrize("n", [1, C, C + 1, N])
@pytest.mark.parametrize("identity", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_few_tokens_and_many_are_pushed_by_the_same_rule(
    temperature: float, identity: bool, n: int
) -> None:
    """Up to N = C through the N×N matrix, above without it: values and gradients of the formula."""
    x = tokens()[:, :n].clone().requires_grad_()
    found = ContraNorm(C, 0.3, temperature, identity=identity)(x, Context())
    expected = (1.3 if identity else 1.0) * x - 0.3 * p_matrix(x, temperature) @ x
    upstream = tokens()[:, :n].cos()
    ours, theirs = (torch.autograd.grad(y, x, upstream)[0] for y in (found, expected))
    assert torch.allclose(found, expected, atol=1e-12)
    assert torch.allclose(ours, theirs, atol=1e-12)


LAYERS = {
    **{f"{n} tokens": (ContraNorm(C), Context(), n) for n in (C, N)},
    "graph": (ContraNorm(C), ring(), N),
    "normalised": (ContraNorm(C, pre_norm=True), Context(), N),
    "channels": (ContraNormD(C, normalize=True, identity=True, layernorm=False), Context(), N),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_token_without_a_direction_has_no_gradient_through_it(name: str) -> None:
    """Nodes without features are 0 until a bias moves; all gradients must have the usual size."""
    layer, context, n = LAYERS[name]
    x = tokens()[:, :n].clone()
    x[:, 3] = 0
    x.requires_grad_()
    found = layer.double()(x, context)
    (gradient,) = torch.autograd.grad(found, x, tokens()[:, :n].cos())
    assert found.isfinite().all() and gradient.abs().max() < 20


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


def test_scale_zero_is_the_identity_or_layernorm() -> None:
    x = tokens()
    assert torch.equal(ContraNorm(C, 0.0)(x, ring()), x)
    normed = ContraNorm(C, 0.0, identity=False, layernorm=True).double()(x, Context())
    assert torch.allclose(normed, F.layer_norm(x, (C,), eps=1e-6), atol=1e-12)


@pytest.mark.parametrize("n", [C, N])
def test_the_printed_form_is_the_equation_of_the_paper(n: int) -> None:
    """Eq. 8, with all nodes of a graph; with x̂ for x and τ = 1 it is the form of the code."""
    x, tau = tokens()[:, :n], 0.4
    px = (x @ x.mT / tau).softmax(dim=-1) @ x
    out = ContraNorm(C, 0.3, tau, printed=True)(x, ring() if n == N else Context())
    assert torch.allclose(out, 1.3 * x - 0.3 / tau * px, atol=1e-12)
    unit = F.normalize(x, dim=-1)
    assert torch.allclose(ContraNorm(C, 0.3, printed=True)(unit), ContraNorm(C, 0.3)(unit))


FORMS = {  # options at s = 0.5, and the formula with P, Pᵀ and x̂
    "dual": ({"dual": True, "identity": False}, lambda x, p, unit: x - 0.5 * (p + p.mT) @ x),
    "pre_norm": ({"pre_norm": True, "identity": False}, lambda x, p, unit: unit - 0.5 * p @ unit),
    "learnable": ({"learnable": True}, lambda x, p, unit: 0.5 * (x - p @ x)),
    "positive": ({"learnable": True, "positive": True}, lambda x, p, unit: 0.5 * (x - p @ x)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_its_formula(form: str) -> None:
    x, (options, formula) = tokens(), FORMS[form]
    layer = ContraNorm(C, 0.5, **options).double()
    out = layer(x, Context())
    assert torch.allclose(out, formula(x, p_matrix(x), F.normalize(x, dim=-1)), atol=1e-7)
    if options.get("learnable"):
        out.square().sum().backward()
        assert layer.scale.grad.abs().min() > 0


def test_the_dual_form_is_its_formula_and_never_n_by_n() -> None:
    """That of the paper, and that of the code with normalised tokens."""
    x = tokens()
    expected = F.layer_norm(x - 0.7 * x @ (x.mT @ x).softmax(dim=-1), (C,))
    assert torch.allclose(ContraNormD(C, 0.7).double()(x, Context()), expected, atol=1e-12)
    unit = F.normalize(x, dim=-1)
    p = (unit.mT @ unit / 0.5).softmax(dim=-1)
    layer = ContraNormD(C, 0.7, 0.5, normalize=True, identity=True, layernorm=False)
    assert torch.allclose(layer(x, Context()), 1.7 * x - 0.7 * x @ p, atol=1e-12)
    many = torch.randn(1, 300_000, C)  # an N×N matrix would take 360 GB
    assert ContraNormD(C)(many, Context()).isfinite().all()


@pytest.mark.parametrize("N", [4, 12])  # N ≤ C: the matrix is formed; else fused
@pytest.mark.parametrize("options", [{}, {"pre_norm": True}])
def test_a_token_of_zeros_stays_zero_and_leaves_the_others_finite(N: int, options: dict) -> None:
    x = torch.randn(1, N, 8, generator=torch.Generator().manual_seed(0))
    x[0, 0] = 0
    layer = ContraNorm(8, **options)
    torch.testing.assert_close(layer(x.half()).float(), layer(x), rtol=0, atol=0.02)
    assert torch.equal(layer(x * 0), x * 0)


def test_raises_the_variance_of_similar_tokens() -> None:
    """Guo et al., Proposition 1: nearly collapsed tokens are spread out again."""
    x = tokens() * 0.01 + 1
    assert (token_variance(ContraNorm(C, 0.5)(x, Context())) > token_variance(x)).all()
