"""BERT and ALBERT: transformers' numbers without aggregators, the papers' with them."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from oversmoothing.aggregators.base import After, Context, Instead
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.backbones.bert.albert import ALBERT
from oversmoothing.backbones.bert.bert import BERT
from oversmoothing.errors import InputError

transformers = pytest.importorskip("transformers")

SMALL = {"weights": "none", "depth": 2, "dim": 16, "heads": 2, "ffn": 32, "vocabulary": 50}
BOTH = pytest.mark.parametrize("kind", [BERT, ALBERT])
POSITIONS = list(BERT.layout.places)


def made(kind: type, *aggregators, **options) -> BERT:
    torch.manual_seed(0)
    network = kind(list(aggregators), **SMALL | {"dropout": 0.0} | options).double().eval()
    for name, parameter in network.named_parameters():
        if "LayerNorm" in name or "layer_norm" in name or name.endswith("bias"):
            nn.init.normal_(parameter, mean=0.5, std=0.5)  # what starts at 0 or 1 shows no mistake
    return network


def batch(*lengths: int, pad: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Sentences whose first words do not depend on how many there are."""
    N = max(lengths) + pad
    tokens = torch.randint(5, 50, (8, 32), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(N) < torch.tensor(lengths)[:, None]
    tokens = tokens[: len(lengths), :N].masked_fill(~mask, 0)
    return tokens, mask, (torch.arange(N) > 3).long().expand_as(tokens) * mask


@BOTH
def test_without_aggregators_the_numbers_are_transformers(kind: type) -> None:
    network, (tokens, mask, types) = made(kind, NoAggregator), batch(9, 5)
    native = network.network(tokens, attention_mask=mask.long(), token_type_ids=types)
    assert torch.equal(network(tokens, mask, types), native.pooler_output)
    layers = network.layers(tokens, mask, types)
    assert len(layers) == 2 and torch.equal(layers[-1], native.last_hidden_state)
    assert not any("sited" in name or "before" in name for name in network.state_dict())


class Reference:
    """BERT's layer by its equations, with a function at every one of ContraNorm's positions."""

    def __init__(self, network: BERT, at: dict, inside=None) -> None:
        self.network, self.at, self.inside = network.network, at, inside

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
        mixed = self.inside(mixed, v, mask) if self.inside else mixed
        context = self.act(2, mixed.transpose(1, 2).flatten(2))
        branch = self.act(3, m["attention.output.dense"](context))
        x = self.act(4, m["attention.output.LayerNorm"](self.act(7, branch + x)))
        hidden = nn.functional.gelu(m["intermediate.dense"](x))
        branch = self.act(5, m["output.dense"](hidden))
        return self.act(6, m["output.LayerNorm"](self.act(8, branch + x)))


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


def test_several_positions_at_once() -> None:
    positions = ["input", "attention_sum", "attention_norm", "context"]
    network = made(BERT, partial(ContraNorm, scale=0.3), position=positions)
    inputs = batch(9, 5)
    expected = Reference(network, dict.fromkeys((1, 7, 4, 2), contranorm))(*inputs)
    torch.testing.assert_close(network.layers(*inputs)[-1], expected)


def test_centered_attention_by_its_equation() -> None:
    """(softmax(QKᵀ/√d) + γ 11ᵀ/n) V per head, before the projection; n counts real tokens."""

    def center(mixed: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        real = mask[:, None, :, None]
        return mixed - 0.5 * (v * real).sum(-2, keepdim=True) / real.sum(-2, keepdim=True)

    network = made(BERT, partial(Centered, gamma=-0.5), mask_padding=True)
    tokens, mask, types = batch(9, 5, 9, 7)
    expected = Reference(network, {}, center)(tokens, mask, types)
    found = network.layers(tokens, mask, types)[-1]
    torch.testing.assert_close(found[mask], expected[mask])


@BOTH
@pytest.mark.parametrize("position", POSITIONS)
def test_gamma_0_and_scale_0_change_nothing(kind: type, position: str) -> None:
    plain, inputs = made(kind, NoAggregator), batch(9, 5)
    for aggregator in (partial(Centered, gamma=0.0), partial(ContraNorm, scale=0.0)):
        for masked in (False, True):
            other = made(kind, aggregator, position=position, mask_padding=masked)
            torch.testing.assert_close(other(*inputs), plain(*inputs))


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


def test_unmasked_padding_takes_part_as_in_the_authors_code() -> None:
    network = made(BERT, ContraNorm)
    assert not torch.allclose(network(*batch(5)), network(*batch(5, pad=3)))


def test_instead_takes_the_place_of_attention_and_its_projections() -> None:
    network, (tokens, mask, types) = made(BERT, Twice), batch(9)
    x = network.network.embeddings(input_ids=tokens, token_type_ids=types)
    for layer in network.network.encoder.layer:
        x = layer.attention.output.LayerNorm(3 * x)
        hidden = nn.functional.gelu(layer.intermediate.dense(x))
        x = layer.output.LayerNorm(layer.output.dense(hidden) + x)
    torch.testing.assert_close(network.layers(tokens, mask, types)[-1], x)
    assert not any(name in key for key in network.state_dict() for name in NAMES)


@BOTH
@pytest.mark.parametrize("aggregator", [Centered, Learned, Twice])
@pytest.mark.parametrize("masked", [False, True])
def test_a_gradient_reaches_every_parameter(kind: type, aggregator, masked: bool) -> None:
    network = made(kind, aggregator, position=["input", "ffn_sum"], mask_padding=masked).train()
    network(*batch(9, 5)).square().sum().backward()
    without = {n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()}
    assert {name for name in without if "key.bias" not in name} == set()  # softmax ignores it


@BOTH
def test_dropout_and_fused_attention_stay(kind: type) -> None:
    network, inputs = made(kind, Centered, dropout=0.5).train(), batch(9, 5)
    assert not torch.equal(network(*inputs), network(*inputs))


def test_alberts_layers_share_their_aggregators() -> None:
    network = made(ALBERT, Learned)
    assert sum(isinstance(module, Learned) for module in network.modules()) == 1
    assert sum(isinstance(module, Learned) for module in made(BERT, Learned).modules()) == 2


def published(network: BERT, path: Path, prefix: str) -> dict[str, Tensor]:
    """As the first files have it: prefixed, norms called gamma and beta, with a head."""
    state = {f"{prefix}.{key}": value for key, value in network.network.state_dict().items()}
    renamed = {
        key.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): value.clone()
        for key, value in state.items()
    }
    save_file(renamed | {"cls.predictions.bias": torch.zeros(50)}, path)
    return state


@pytest.mark.parametrize("kind, prefix", [(BERT, "bert"), (ALBERT, "albert")])
def test_weights_of_a_file_whatever_the_aggregator(tmp_path: Path, kind: type, prefix: str) -> None:
    path, inputs = tmp_path / "model.safetensors", batch(9, 5)
    first = made(kind, NoAggregator)
    published(first, path, prefix)
    torch.manual_seed(1)
    options = SMALL | {"weights": str(path), "dropout": 0.0}
    for aggregator in (NoAggregator, partial(Centered, gamma=0.0), partial(ContraNorm, scale=0.0)):
        second = kind([aggregator], **options).double().eval()
        torch.testing.assert_close(second(*inputs), first(*inputs), rtol=1e-5, atol=1e-5)


def test_depth_and_the_layers_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    state = published(made(BERT, NoAggregator), path, "bert")
    for depth in (1, 4):
        network = BERT([NoAggregator], **SMALL | {"weights": str(path), "depth": depth})
        assert network.depth == len(network.network.encoder.layer) == depth
        own = network.network.encoder.layer[0].output.dense.weight
        assert torch.equal(own, state["bert.encoder.layer.0.output.dense.weight"].float())


@pytest.mark.parametrize(
    "options, said",
    [
        ({"position": "7"}, r"backbone\.position: expected input, .*got '7'"),
        ({"heads": 3}, r"backbone\.heads: expected a divisor of dim=16"),
        ({"dropout": 1.0}, r"backbone\.dropout: expected a rate from 0 to below 1"),
        ({"depth": 0}, r"backbone\.depth: expected 1 or more"),
        (
            {"weights": "no.safetensors"},
            r"backbone\.weights: cannot read no\.safetensors .*; expected hub",
        ),
        ({"sha256": "12345678"}, r"backbone\.sha256: weights=none reads no file"),
    ],
)
def test_mistakes_are_one_line(options: dict, said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(BERT, NoAggregator, **options)


def test_weights_that_do_not_fit_or_are_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    published(made(BERT, NoAggregator), path, "bert")
    with pytest.raises(InputError, match=r"another architecture: embeddings\.word_embeddings\.we"):
        made(BERT, NoAggregator, weights=str(path), vocabulary=60)
    with pytest.raises(InputError, match=r"expected SHA-256 12345678"):
        made(BERT, NoAggregator, weights=str(path), sha256="12345678")
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    with pytest.raises(InputError, match=r"nobody/bert/model\.safetensors: the hub's weights"):
        made(BERT, NoAggregator, weights="hub", name="nobody/bert")


def test_aggregators_that_exclude_one_another() -> None:
    with pytest.raises(InputError, match=r"leaves no mixing to another one"):
        made(BERT, Twice, Centered)
