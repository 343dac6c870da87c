"""The tokens of a layer lie along the right axis, whatever the layer returns beside them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import oversmoothing as osm


class Blocks(nn.Module):
    """Blocks in a row; the first tensor of each, or one of its dictionary, is the next one's input.

    Args:
        build: builds a block.
        change: of a block's output, what it returns in all.
    """

    def __init__(self, build: Callable[[], nn.Module], change: Any = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(build(), change) if change else build() for _ in "12"])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            out = block(x)
            x = out[-1] if isinstance(out, tuple) and isinstance(block, Block) else out
            x = x[0] if isinstance(x, tuple) else x
        return x


class Block(nn.Module):
    def __init__(self, inner: nn.Module, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.inner(x))


def cosines(model: nn.Module, x: Tensor, tokens: Callable[[Tensor], Tensor]) -> list[float]:
    """Mean cosines of the tokens (B, N, C) of each block."""
    found = []
    with torch.no_grad():
        for block in model.eval().blocks:
            out = block(x)
            x = out[0] if isinstance(out, tuple) else out
            found.append(osm.metrics.mean_cosine(tokens(x)).mean().item())
    return found


def convolution() -> nn.Module:
    return nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU())


@pytest.mark.parametrize("N", [5, 8])
def test_positions_of_one_dimensional_convolutions(N: int) -> None:
    model, x = Blocks(lambda: nn.Conv1d(8, 8, 3, padding=1)), torch.randn(3, 8, N)
    report = osm.diagnose(model, x)
    assert report.tokens == (N, N) and report["cosine"] == cosines(model, x, lambda x: x.mT)


def test_convolutions_beside_other_layers() -> None:
    model, x = Blocks(convolution), torch.randn(3, 8, 5)
    assert osm.diagnose(model, x)["cosine"] == cosines(model, x, lambda x: x.mT)
    with pytest.raises(osm.InputError, match=r"blocks\.0 returns \(3, 8, 8\).*BCN or BNC"):
        osm.diagnose(model, torch.randn(3, 8, 8))
    assert osm.diagnose(model, torch.randn(3, 8, 8), layout="BCN").tokens == (8, 8)


@pytest.mark.parametrize("batch_first", [True, False])
def test_positions_of_recurrent_layers(batch_first: bool) -> None:
    model = Blocks(lambda: nn.LSTM(6, 6, batch_first=batch_first))
    x = torch.randn(3, 5, 6)
    x = x if batch_first else x.transpose(0, 1)
    report = osm.diagnose(model, x)
    tokens = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
    assert report.samples == 3 and report.tokens == (5, 5)
    assert report["cosine"] == pytest.approx(cosines(model, x, tokens), rel=1e-12)


def test_tokens_of_the_samples_are_preferred_to_smaller_ones() -> None:
    """A block of TNT returns pixels (B·N, n, c) before patches (B, N, C)."""
    plain = Blocks(lambda: nn.Linear(8, 8))
    inside = Blocks(lambda: nn.Linear(8, 8), lambda x: (torch.rand(15, 4, 2), x))
    for own, other in zip(inside.blocks, plain.blocks):
        own.inner.load_state_dict(other.state_dict())
    x = torch.randn(3, 5, 8)
    assert osm.diagnose(inside, x).values == osm.diagnose(plain, x).values


def test_an_attention_map_before_the_tokens_is_passed_over() -> None:
    """A block returns its map (B, heads, N, N) before the tokens (B, N, C)."""
    plain = Blocks(lambda: nn.Linear(8, 8))
    mapped = Blocks(lambda: nn.Linear(8, 8), lambda x: (torch.rand(3, 2, 5, 5), x))
    for own, other in zip(mapped.blocks, plain.blocks):
        own.inner.load_state_dict(other.state_dict())
    x = torch.randn(3, 5, 8)
    assert osm.diagnose(mapped, x).values == osm.diagnose(plain, x).values


def test_several_kinds_of_nodes_are_refused() -> None:
    model = Blocks(lambda: nn.Linear(8, 8), lambda x: {"paper": x, "author": x[:2]})
    model.forward = lambda x: model.blocks[0](x)  # type: ignore[method-assign]
    with pytest.raises(osm.InputError, match=r"blocks\.0 returns .*kinds, paper, author; choose"):
        osm.diagnose(model, torch.randn(5, 8), layout="NC")


@pytest.mark.parametrize("shared", [(1, 2), (3, 1), (1, 1)], ids=str)
def test_maps_of_keys_that_samples_or_heads_share(shared: tuple[int, int]) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.key = nn.Parameter(torch.randn(*shared, 5, 4))

        def forward(self, x: Tensor) -> Tensor:
            q = x.unflatten(-1, (2, 4)).transpose(1, 2)
            key = self.key if shared[1] == 2 else self.key.expand(-1, 2, -1, -1)
            return F.scaled_dot_product_attention(q, key, q).transpose(1, 2).flatten(2)

    model, x = Blocks(Attention), torch.randn(3, 5, 8)
    found = osm.diagnose(model, x)["attention_similarity"][0]
    q = x.double().unflatten(-1, (2, 4)).transpose(1, 2)
    A = (q @ model.blocks[0].key.detach().double().mT / 2).softmax(-1)
    assert found == pytest.approx(osm.metrics.mean_cosine(A).mean().item(), abs=1e-6)
