"""The random transformer against the paper's equations, and its independence of company."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Instead
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.lab.backbones.transformer import RandomTransformer

GAMMAS = [-1.5, -1.0, 0.5]
SMALL = {"depth": 4, "num_tokens": 6, "dim": 8}


def centered(gammas: list[float] = GAMMAS, dtype: torch.dtype = torch.float64) -> list:
    return [partial(Centered, gamma=torch.tensor(gammas, dtype=dtype).view(-1, 1, 1))]


def network(seeds: list[int], gammas: list[float] = GAMMAS, **options) -> RandomTransformer:
    return RandomTransformer(centered(gammas), seeds, copies=len(gammas), **{**SMALL, **options})


def outputs(model: RandomTransformer) -> Tensor:
    return torch.stack(list(model.outputs()))


def rows_normalised(x: Tensor) -> Tensor:
    return x / x.pow(2).sum(1, keepdim=True).sqrt()


def attend(gamma: float, w: Tensor, x: Tensor) -> Tensor:
    n, d = x.shape
    attention = torch.exp(x @ w[0] @ (x @ w[1]).T / d**0.5)
    attention = attention / attention.sum(1, keepdim=True)
    return (attention + gamma * torch.ones(n, n, dtype=x.dtype) / n) @ x @ w[2]


def reference(block: str, gamma: float, seed: int, n: int, d: int, depth: int) -> list[Tensor]:
    """Section 4.1 of the paper, written out for one network with N(0, 1) weights."""
    generator = torch.Generator().manual_seed(seed)
    x = r = torch.eye(n, d, dtype=torch.float64)
    results = []
    for _ in range(depth):
        w = torch.empty(3, d, d, dtype=torch.float64).normal_(generator=generator)
        s = partial(attend, gamma, w)
        if block == "pre_ln":
            x = s(rows_normalised(x)) + x
            results.append(rows_normalised(x))
        elif block == "post_ln":
            x = rows_normalised(s(x) + x)
            results.append(x)
        elif block == "resi_dual":
            x, r = rows_normalised(s(x) + x), r + s(x)
            results.append(rows_normalised(r) + x)
        else:
            x = s(x)
            results.append(x)
    return results


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "resi_dual", "plain"])
def test_equals_the_paper(block: str) -> None:
    size = {"depth": 3, "num_tokens": 6, "dim": 6}
    got = outputs(network([3, 7], block=block, weights="normal", **size))
    for s, seed in enumerate((3, 7)):
        for g, gamma in enumerate(GAMMAS):
            expected = torch.stack(reference(block, gamma, seed, 6, 6, 3))
            torch.testing.assert_close(got[:, s, g], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "resi_dual", "plain"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_seed_and_a_gamma_do_not_depend_on_company(block: str, dtype: torch.dtype) -> None:
    options = {"block": block, "dtype": dtype, "num_tokens": 20, "dim": 20}
    together = RandomTransformer(centered(dtype=dtype), [0, 1, 2], copies=3, **{**SMALL, **options})
    alone = RandomTransformer(centered([-1.0], dtype), [1], **{**SMALL, **options})
    assert torch.equal(outputs(together)[:, 1:2, 1:2], outputs(alone))


def test_a_seed_with_parameters_does_not_depend_on_company() -> None:
    class Noisy(Instead):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(dim))

        def forward(self, x: Tensor, context: object) -> Tensor:
            return x * self.weight

    together = outputs(RandomTransformer([Noisy], [4, 5], block="plain", **SMALL))
    alone = outputs(RandomTransformer([Noisy], [5], block="plain", **SMALL))
    assert torch.equal(together[:, 1:], alone)
    assert not torch.equal(together[:, :1], alone)


@pytest.mark.parametrize("shared", [False, True])
def test_resumes_to_the_same_bits(shared: bool) -> None:
    options = {"block": "resi_dual", "shared": shared, "depth": 6}
    whole = outputs(network([0, 1], **options))
    first, second = network([0, 1], **options), network([0, 1], **options)
    steps = first.outputs()
    for _ in range(3):
        next(steps)
    second.load_state_dict(first.state_dict())
    assert torch.equal(outputs(second), whole[3:])


def test_shared_weights_repeat_and_fresh_ones_do_not() -> None:
    for shared in (True, False):
        weights = network([0], shared=shared).weights
        first, second = (weights.next_layer("cpu", torch.float64)[0] for _ in range(2))
        assert torch.equal(first, second) == shared


def test_weights_have_their_distribution() -> None:
    def spread(**options) -> Tensor:
        weights = network([0], dim=100, **options).weights
        return torch.stack(weights.next_layer("cpu", torch.float64))

    uniform = spread(weights="uniform")
    assert 0 <= uniform.min() < 0.01 and 0.99 < uniform.max() <= 1
    assert spread(weights="normal").std().item() == pytest.approx(1, abs=0.02)
    scaled = spread(weights="normal", weight_std="fan_in")
    assert scaled.std().item() == pytest.approx(0.1, abs=0.002)


def test_identity_weights_are_the_identity() -> None:
    model = network([0], gammas=[0.0], block="plain", weights="identity", depth=1)
    x = torch.eye(6, 8, dtype=torch.float64)
    expected = torch.softmax(x @ x.T / 8**0.5, dim=-1) @ x
    torch.testing.assert_close(outputs(model)[0, 0, 0], expected)


def test_float32_follows_float64() -> None:
    options = {"block": "post_ln", "weights": "normal", "weight_std": "fan_in", "num_tokens": 6}
    wide = network([0], **options)
    narrow = RandomTransformer(
        centered(dtype=torch.float32), [0], copies=3, dtype=torch.float32, **{**SMALL, **options}
    )
    got = outputs(narrow)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), outputs(wide), atol=1e-4, rtol=1e-4)


def test_sites_combine() -> None:
    both = RandomTransformer([*centered([-1.0]), LayerNorm], [0], block="plain", **SMALL)
    alone = RandomTransformer(centered([-1.0]), [0], block="plain", **SMALL)
    normalised = torch.nn.functional.layer_norm(outputs(alone)[0], (8,))
    torch.testing.assert_close(outputs(both)[0], normalised)


def test_instead_takes_the_place_of_the_mixing() -> None:
    class Twice(Instead):
        def forward(self, x: Tensor, context: object) -> Tensor:
            return 2 * x

    out = outputs(RandomTransformer([Twice, NoAggregator], [0], block="plain", **SMALL))
    assert torch.equal(out[3, 0, 0], 16 * torch.eye(6, 8, dtype=torch.float64))
