"""Every backbone under torch.compile gives the outputs and gradients that it gives without."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from small_cnn import cnn
from small_vit import images, vit
from torch import Tensor, nn

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.external import External
from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.t2t import SIZES, Size, T2TViT

CENTERED = partial(Centered, gamma=-0.5)


def text(*aggregators: object) -> tuple[nn.Module, tuple]:
    sizes = {"depth": 1, "dim": 16, "heads": 2, "ffn": 32, "vocabulary": 50, "dropout": 0.0}
    tokens = torch.arange(5, 29).view(2, 12)
    mask, types = torch.arange(12) < torch.tensor([[12], [7]]), torch.zeros_like(tokens)
    return BERT(list(aggregators), weights="none", **sizes), (tokens, mask, types)


def graph(*aggregators: object) -> tuple[nn.Module, tuple]:
    edges = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 5]])
    both = torch.cat([edges, edges.flip(0)], dim=1)
    x = torch.eye(6)
    return GCN(list(aggregators), x, both, 3, [0, 1], depth=3, dropout=0.0), ()


def t2t(*aggregators: object) -> tuple[nn.Module, tuple]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "t2t_vit_7", Size(64, 1, 4, 2.0))
        return T2TViT(list(aggregators), name="t2t_vit_7"), (images(1, 3, 64, 64),)


NETWORKS = {
    "vit inside, after": lambda: (vit(CENTERED, ContraNorm, depth=1), (images(2, 3, 32, 32),)),
    "vit external": lambda: (vit(External, depth=1), (images(2, 3, 32, 32),)),
    "t2t contranorm": lambda: t2t(ContraNorm),
    "cnn em": lambda: (cnn(partial(EM, num_bases=3)), (images(1, 3, 33, 33),)),
    "bert contranorm": lambda: text(ContraNorm),
    "gcn centered": lambda: graph(CENTERED),
}
WHOLE = ["vit inside, after", "vit external"]  # have one graph


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def measured(network: nn.Module, call: Callable, inputs: tuple) -> list[Tensor]:
    """The output, and the gradient of every parameter."""
    network.zero_grad()
    torch.manual_seed(0)
    out = call(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    out.square().sum().backward()
    return [out.detach(), *(p.grad.clone() for p in network.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_compiled_backbone_gives_the_same_outputs_and_gradients(name: str) -> None:
    network, inputs = NETWORKS[name]()
    plain = measured(network.eval(), network, inputs)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=name in WHOLE)
    found = measured(network, compiled, inputs)
    assert len(found) == len(plain) > 1
    for ours, theirs in zip(found, plain):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * theirs.abs().max().item())
