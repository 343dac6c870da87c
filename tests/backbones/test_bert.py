"""BERT and ALBERT: transformers' numbers without aggregators, the papers' with them."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from small_bert import batch, made
from torch import Tensor, nn

from oversmoothing.aggregators.base import After, Context, Instead
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.lab.backbones.bert import ALBERT, BERT, PreNormBERT

transformers = pytest.importorskip("transformers")

BOTH = pytest.mark.parametrize("kind", [BERT, ALBERT])
EVERY = pytest.mark.parametrize("kind", [BERT, PreNormBERT, ALBERT])
POSITIONS = list(BERT.layout.places)


@EVERY
def test_without_aggregators_the_numbers_are_transformers(kind: type) -> None:
    network, (tokens, mask, types) = made(kind, NoAggregator), batch(9, 5)
    native = network.network(tokens, attention_mask=mask.long(), token_type_ids=types)
    assert torch.equal(network(tokens, mask, types), native.pooler_output)
    layers = network.layers(tokens, mask, types)
    assert len(layers) == 2 and torch.equal(layers[-1], native.last_hidden_state)
    assert not any("sited" in name or "before" in name for name in network.state_dict())


class Reference:
    """BERT's layer by its equations, with a function at every one of ContraNorm's positions."""

    def __init__(self, network: BERT, at: dict) -> None:
        self.network, self.at = network.network, at

    def act(self, number: int, x: Tensor) -> Tensor:
        return self.at.get(number, lambda x: x)(x)

    def __call__(self, tokens: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        x = self.network.embeddings(input_ids=tokens, token_type_ids=types)
        for layer in self.network.encoder.layer:
            x = self.layer(inner(layer), x, mask)
        return x

    def layer(self, m: dict, x: Tensor, mask: Tensor) -> Tensor:
        x = self.act(1, x)
        q, k, v = (m[f"attention.self.{n}"](x).unflatten(-1, (2, 8)).transpose(1, 2) for n in NAMES)
        scores = (q @ k.mT / math.sqrt(8)).masked_fill(~mask[:, None, None], -math.inf)
        mixed = scores.softmax(-1) @ v
        context = self.act(2, mixed.transpose(1, 2).flatten(2))
        branch = self.act(3, m["attention.output.dense"](context))
        x = self.act(4, m["attention.output.LayerNorm"](self.act(7, branch + x)))
        hidden = nn.functional.gelu(m["intermediate.dense"](x))
        branch = self.act(5, m["output.dense"](hidden))
        return self.act(6, m["output.LayerNorm"](self.act(8, branch + x)))


class NormsFirst(Reference):
    """The same with the norms before the branches, and one at the end."""

    def __call__(self, tokens: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        return self.network.encoder.ln(super().__call__(tokens, mask, types))

    def layer(self, m: dict, x: Tensor, mask: Tensor) -> Tensor:
        x = self.act(1, x)
        y = m["attention.ln"](x)
        q, k, v = (m[f"attention.self.{n}"](y).unflatten(-1, (2, 8)).transpose(1, 2) for n in NAMES)
        scores = (q @ k.mT / math.sqrt(8)).masked_fill(~mask[:, None, None], -math.inf)
        context = self.act(2, (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        x = self.act(7, self.act(3, m["attention.output.dense"](context)) + x)
        hidden = nn.functional.gelu(m["intermediate.dense"](self.act(4, m["ln"](x))))
        return self.act(8, self.act(5, m["output.dense"](hidden)) + x)


NAMES = ("query", "key", "value")


def inner(layer: nn.Module) -> dict[str, Callable]:
    """A layer's modules without the hooks that apply aggregators."""
    return {name: module.forward for name, module in layer.named_modules()}


def contranorm(x: Tensor, s: float = 0.3) -> Tensor:
    x_hat = x / x.norm(dim=-1, keepdim=True)
    return (1 + s) * x - s * (x_hat @ x_hat.mT).softmax(-1) @ x


NUMBERS = dict(zip(POSITIONS, (1, 2, 3, 4, 5, 6, 7, 8)))


@pytest.mark.parametrize("position", POSITIONS)
def test_contranorm_at_every_position_of_the_authors_code(position: str) -> None:
    """Padding takes part, as there."""
    network = made(BERT, partial(ContraNorm, scale=0.3), position=position)
    inputs = batch(9, 5, 7)
    expected = Reference(network, {NUMBERS[position]: contranorm})(*inputs)
    torch.testing.assert_close(network.layers(*inputs)[-1], expected)


@pytest.mark.parametrize("position", PreNormBERT.layout.places)
def test_contranorm_where_the_norms_are_first(position: str) -> None:
    network = made(PreNormBERT, partial(ContraNorm, scale=0.3), position=position)
    inputs = batch(9, 5, 7)
    expected = NormsFirst(network, {NUMBERS[position]: contranorm})(*inputs)
    torch.testing.assert_close(network.layers(*inputs)[-1], expected)


def test_several_positions_at_once() -> None:
    positions = ["input", "attention_sum", "attention_norm", "context"]
    network = made(BERT, partial(ContraNorm, scale=0.3), position=positions)
    inputs = batch(9, 5)
    expected = Reference(network, dict.fromkeys((1, 7, 4, 2), contranorm))(*inputs)
    torch.testing.assert_close(network.layers(*inputs)[-1], expected)


class Twice(Instead):
    def forward(self, x: Tensor, context: Context) -> Tensor:
        return 2 * x


class Learned(After):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, dtype=torch.float64))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return x * self.weight + x.mean(dim=-2, keepdim=True)


@BOTH
@pytest.mark.parametrize("aggregator", [Centered, ContraNorm, Twice])
def test_masked_a_sentence_does_not_know_its_company(kind: type, aggregator) -> None:
    network = made(kind, aggregator, mask_padding=True)
    alone = network(*batch(5))
    in_company = network(*(x.flip(0) for x in batch(5, 9, 7, pad=7)))[-1:]
    torch.testing.assert_close(in_company, alone)


def test_instead_takes_the_place_of_attention_and_its_projections() -> None:
    network, (tokens, mask, types) = made(BERT, Twice), batch(9)
    x = network.network.embeddings(input_ids=tokens, token_type_ids=types)
    for layer in network.network.encoder.layer:
        x = layer.attention.output.LayerNorm(3 * x)
        hidden = nn.functional.gelu(layer.intermediate.dense(x))
        x = layer.output.LayerNorm(layer.output.dense(hidden) + x)
    torch.testing.assert_close(network.layers(tokens, mask, types)[-1], x)
    assert not any(name in key for key in network.state_dict() for name in NAMES)


def test_alberts_layers_share_their_aggregators() -> None:
    network = made(ALBERT, Learned)
    assert sum(isinstance(module, Learned) for module in network.modules()) == 1
    assert sum(isinstance(module, Learned) for module in made(BERT, Learned).modules()) == 2
