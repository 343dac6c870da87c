"""Methods αV + βMV + γv̄ and others on the values, against the explicit matrices in float64."""

import pytest
import torch
from torch import Tensor

import oversmoothing as osm
from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.values import own_values

H, N, C = 3, 7, 4
EXACT = {"rtol": 0, "atol": 1e-12}
RANDOM = torch.Generator().manual_seed(0)
SCORES = torch.randn(2, H, N, N, generator=RANDOM, dtype=torch.float64)
V = torch.randn(2, H, N, C, generator=RANDOM, dtype=torch.float64)
PADDING = torch.tensor([[1] * N, [1, 1, 1, 1, 0, 0, 0]]).bool()[:, None, None]
LOWER = torch.ones(N, N, dtype=torch.bool).tril()
CONTEXTS = {  # and which values each token sees
    "all": (Context(), torch.ones(N, N).bool()),
    "padding": (Context(mask=PADDING), PADDING),
    "causal": (Context(causal=True), LOWER),
    "causal mask": (Context(mask=LOWER), LOWER),
    "causal, padding": (Context(mask=PADDING, causal=True), PADDING & LOWER),
}
EVERY = pytest.mark.parametrize("name", CONTEXTS)


def matrices(seen: Tensor) -> tuple[Tensor, Tensor]:
    """M and the uniform attention, both over the values that each token sees."""
    seen = seen.expand(2, H, N, N)
    uniform = seen.double() / seen.sum(-1, keepdim=True)
    return SCORES.masked_fill(~seen, -torch.inf).softmax(-1), uniform


def by_head(numbers: Tensor) -> Tensor:
    return numbers[:, None, None]


@EVERY
def test_attn_scale_scales_what_is_beyond_the_mean(name: str) -> None:
    """Also of the last tokens alone, as in generation with a cache."""
    context, seen = CONTEXTS[name]
    M, U = matrices(seen)
    method = osm.AttnScale(heads=H).double()
    torch.testing.assert_close(method(M @ V, V, context), M @ V, **EXACT)
    lam = method.lam.data = torch.tensor([0.5, -1.0, 2.0]).double()
    expected = (U + by_head(1 + lam) * (M - U)) @ V
    torch.testing.assert_close(method(M @ V, V, context), expected, **EXACT)
    if name.startswith("causal") and name != "causal mask":
        last = method((M @ V)[..., -2:, :], V, context)
        torch.testing.assert_close(last, expected[..., -2:, :], **EXACT)


@EVERY
def test_shaped_attention_adds_the_token_and_takes_off_the_mean(name: str) -> None:
    context, seen = CONTEXTS[name]
    M, U = matrices(seen)
    method = osm.ShapedAttention(heads=H).double()
    torch.testing.assert_close(method(M @ V, V, context), M @ V, **EXACT)
    for parameter in method.parameters():
        parameter.data = torch.randn(H, generator=RANDOM).double()
    alpha, beta, gamma = map(by_head, method.parameters())
    expected = (alpha * torch.eye(N) + beta * M - gamma * U) @ V
    torch.testing.assert_close(method(M @ V, V, context), expected, **EXACT)
    if name.startswith("causal"):
        if name == "causal mask":  # a cache with one place that holds no token yet
            context = Context(mask=LOWER[-2:])
        last = method((M @ V)[..., -2:, :], V, context)[:1]
        torch.testing.assert_close(last, expected[:1, ..., -2:, :], **EXACT)


def test_a_cache_of_fixed_size_ends_in_places_without_tokens() -> None:
    """The own values are the last that are seen."""
    places = torch.arange(N) < 4
    seen = (LOWER & places)[2:4]  # the third and the fourth token
    assert torch.equal(own_values(V, 2, Context(mask=seen)), V[..., 2:4, :])
    with pytest.raises(osm.InputError, match="^model: "):  # pooled values, as in SegFormer
        own_values(V, V.shape[-2] + 1, Context())


@pytest.mark.parametrize("name", ["all", "padding"])
def test_feat_scale_weights_the_mean_and_the_rest_of_every_channel(name: str) -> None:
    context, seen = CONTEXTS[name]
    x, (_, U) = V[:, 0], matrices(seen)
    method = osm.FeatScale(C).double()
    context = Context(mask=None if context.mask is None else context.mask[:, 0])
    torch.testing.assert_close(method(x, context), x, **EXACT)
    s, t = method.s.data, method.t.data = torch.randn(2, C, generator=RANDOM).double()
    mean = U[:, 0] @ x
    torch.testing.assert_close(method(x, context), x + s * mean + t * (x - mean), **EXACT)


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("identity", [False, True])
def test_gated_attention_multiplies_every_head_by_a_gate_of_the_token(
    identity: bool, elementwise: bool
) -> None:
    torch.manual_seed(0)
    x, (M, _) = torch.randn(2, N, 5).double(), matrices(LOWER)
    method = osm.GatedAttention(C, H, 5, elementwise, identity).double()
    found = method(M @ V, V, Context(tokens=x))
    torch.testing.assert_close(found, M @ V if identity else found, **EXACT)
    method.gate.weight.data = torch.randn_like(method.gate.weight)
    gates = (x @ method.gate.weight.T).sigmoid() * (2 if identity else 1)
    width = C if elementwise else 1
    expected = [gates[..., None, h * width : (h + 1) * width] for h in range(H)]
    expected = torch.cat(expected, dim=-2).transpose(1, 2) * (M @ V)
    torch.testing.assert_close(method(M @ V, V, Context(tokens=x)), expected, **EXACT)
    last = method((M @ V)[..., -2:, :], V, Context(tokens=x[:, -2:]))
    torch.testing.assert_close(last, expected[..., -2:, :], **EXACT)
    with pytest.raises(osm.InputError, match="^context.tokens: "):
        method(M @ V, V)


@pytest.mark.parametrize("training", [True, False])
@EVERY
def test_re_attention_combines_the_maps_of_heads(name: str, training: bool) -> None:
    """Hidden values get no weight, and neither they nor padding change the rest."""
    context, seen = CONTEXTS[name]
    context = Context(mask=seen)
    M, _ = matrices(seen)
    torch.manual_seed(0)
    method = osm.ReAttention(H).double().train(training)
    for parameter in (*method.parameters(), method.norm.running_mean):
        parameter.data = torch.randn_like(parameter)
    theta = torch.einsum("gh,bhij->bgij", method.theta.weight, M) + by_head(method.theta.bias)
    pairs = (seen & seen.any(-2)[..., None]).expand(2, 1, N, N)
    if training:
        rows = theta.movedim(1, -1)[pairs[:, 0]]
        mean, variance = rows.mean(0), rows.var(0, correction=0)
    else:
        mean, variance = method.norm.running_mean.clone(), method.norm.running_var.clone()
    normed = (theta - by_head(mean)) / by_head(variance + 1e-5).sqrt()
    expected = (normed * by_head(method.norm.weight) + by_head(method.norm.bias)) * pairs
    torch.testing.assert_close(method.maps(M, context), expected, **EXACT)


def test_re_attention_without_norm_starts_as_the_plain_attention() -> None:
    for context, seen in CONTEXTS.values():
        M, _ = matrices(seen)
        method = osm.ReAttention(H, norm=False, identity=True).double()
        torch.testing.assert_close(method.maps(M, Context(mask=context.mask)), M, **EXACT)
    alike = Context(mask=context.mask.expand(2, H, N, N))  # as with biases of positions, in BEiT
    torch.testing.assert_close(method.maps(M, alike), method.maps(M, context), **EXACT)
    by_heads = Context(mask=torch.ones(2, H, N, N, dtype=torch.bool))
    by_heads.mask[:, 0, 0, 0] = False
    with pytest.raises(osm.InputError, match="^context.mask: "):
        method.maps(M, by_heads)
