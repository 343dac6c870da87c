"""Sorting aggregators into sites, and what building and importing every backbone costs."""

from functools import partial

import pytest
import torch
from small_cnn import cnn
from small_vit import Scale, Swap, vit, vit_contranorm
from torch import Tensor

from oversmoothing.adapters.sites import Sites
from oversmoothing.aggregators.base import PLAIN, After, Aggregator, Context, Inside
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.per_seed import PerSeed


def test_every_aggregator_goes_to_its_site_in_its_order() -> None:
    factories = [LayerNorm, NoAggregator, partial(Scale), lambda: Centered(0.5), vit_contranorm()]
    sites = Sites(factories, 8, "some")
    assert [type(a) for a in sites.build("inside", 4)] == [Scale, Centered]
    assert [type(a) for a in sites.build("after", 8)] == [LayerNorm, ContraNorm]
    assert (
        not sites.build("instead", 8) and sites.has("instead", "after") and not sites.has("instead")
    )
    assert sites.build("inside", 4)[0].scale.shape == (4,)


def test_finding_the_site_of_a_function_draws_no_random_numbers() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert Sites([lambda dim: Swap(dim)], 8, "some").has("instead")
    assert torch.equal(torch.rand(3), expected)


def gcn(*aggregators: object, **options: object) -> GCN:
    x, edges = torch.eye(4), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    return GCN(list(aggregators), x.to_sparse_csr(), edges, 2, [0, 5, 2], depth=4, **options)


def bert(kind: type, *aggregators: object, **options: object) -> BERT:
    pytest.importorskip("transformers")
    sizes = {"depth": 2, "dim": 16, "heads": 2, "ffn": 32, "vocabulary": 50}
    return kind(list(aggregators), weights="none", **sizes, **options)


@torch.no_grad()
def test_a_seed_gives_the_network_that_it_has_always_given() -> None:
    """If aggregators replace norms, one unused instance is built, which draws random numbers."""
    branch, norms = (vit(partial(EM, num_bases=4), depth=3, after=a) for a in ("branch", "norms"))
    bases = [[b.attn.instead[0].bases for b in model.network.blocks] for model in (branch, norms)]
    assert torch.equal(bases[0][1], bases[1][0]) and torch.equal(bases[0][2], bases[1][1])
    assert not torch.equal(bases[0][0], bases[1][0])


def test_checkpoints_hold_these_names() -> None:
    attention = vit(Scale, LayerNorm, depth=1).network.blocks[0].attn.state_dict()
    assert {"inside.0.scale", "after.0.norm.weight", "qkv.weight"} <= attention.keys()
    assert "network.blocks.0.attn.instead.0.linear.weight" in vit(Swap, depth=1).state_dict()
    assert "network.norm.aggregators.0.norm.bias" in vit(LayerNorm, after="norms").state_dict()
    assert "unit.aggregators.0.linear.weight" in cnn(LayerNorm, Swap).state_dict()
    assert "aggregators.2.1.copies.0.norm.weight" in gcn(NoAggregator, LayerNorm).state_dict()
    layer = bert(BERT, Scale, LayerNorm, position="ffn").network.encoder.layer[0].state_dict()
    assert {
        "attention.self.inside.0.scale",
        "output.dropout.after.0.norm.weight",
    } <= layer.keys()


class Flat(After):
    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        return x.mean(dim=-2)


class Forgetful(After):
    def forward(self, x: Tensor, context: Context = PLAIN) -> None:  # type: ignore[override]
        x.add(1)


class Unfinished(After):
    pass


class Short(Inside):
    def forward(self, mixed: Tensor) -> Tensor:  # type: ignore[override]
        return mixed


def test_an_aggregator_that_breaks_its_contract_is_named() -> None:
    wrong: dict[type[Aggregator], str] = {
        Flat: r"Flat.forward returns \(2, 4\) for tokens \(2, 3, 4\); return",
        Forgetful: r"Forgetful.forward returns NoneType for tokens \(2, 3, 4\)",
    }
    for kind, message in wrong.items():
        with pytest.raises(InputError, match=message):
            Sites([kind], 4, "some").build("after", 4)(torch.ones(2, 3, 4), PLAIN)
        with pytest.raises(InputError, match=message):
            PerSeed([kind(), kind()], [0, 1])(torch.ones(2, 3, 4), PLAIN)
    with pytest.raises(InputError, match=r"Unfinished needs a method forward\(self, x, context\)"):
        Sites([Unfinished], 4, "some").build("after", 4)
    with pytest.raises(InputError, match=r"Short needs .* forward\(self, mixed, v, context\)"):
        Sites([Short], 4, "some").build("inside", 4)
