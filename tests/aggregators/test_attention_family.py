"""Methods αV + βMV + γv̄ and others on the values, against the explicit matrices in float64."""

import pytest
import torch
from torch import Tensor

import oversmoothing as osm
from oversmoothing.aggregators.base import Context

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
