"""Groups last as long as their call, and as gradient checkpointing repeats parts or all of it."""

import copy
from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from applied_models import EDGES, PADDED, WORDS, bert
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import oversmoothing as osm

BATCH = torch.tensor([0, 0, 0, 1, 1, 0])
reentrant = pytest.mark.parametrize("reentrant", [False, True])


class Stack(nn.Module):
    """Convolutions, each of them checkpointed if a function for that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(pyg.GCNConv(4, 4) for _ in range(3))
        self.repeat = lambda conv, *args: conv(*args)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = self.repeat(conv, x, edge_index)
        return x


@reentrant
@pytest.mark.parametrize("training", [False, True])
def test_parts_of_a_call_have_its_groups(reentrant: bool, training: bool) -> None:
    """Also in evaluation mode, since gradients may flow through a frozen network."""
    torch.manual_seed(0)
    plain = osm.apply(Stack().double().train(training), "pairnorm", blocks=[0, 1, 2])
    repeated, gradients = copy.deepcopy(plain), []
    repeated.repeat = partial(checkpoint, use_reentrant=reentrant)
    for model in (plain, repeated):
        x = torch.linspace(-1, 2, 24).double().view(6, 4).requires_grad_()
        (model(x, EDGES, BATCH) ** 3).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


@reentrant
def test_a_whole_call_has_its_own_groups(reentrant: bool) -> None:
    torch.manual_seed(0)
    model = osm.apply(bert().double().eval(), "pairnorm").train()
    for module in model.modules():
        module.p = 0.0  # of dropout
    words = torch.randn(2, 7, 16).double()

    def gradient(repeat: bool, mask: Tensor) -> Tensor:
        x = words.clone().requires_grad_()
        call = lambda x: model(inputs_embeds=x, attention_mask=mask)[0]  # noqa: E731
        out = checkpoint(call, x, use_reentrant=reentrant) if repeat else call(x)
        (out**3).sum().backward()
        return x.grad

    for mask in (PADDED, PADDED.flip(0)):
        torch.testing.assert_close(gradient(True, mask), gradient(False, mask))


@torch.no_grad()
def test_a_layer_called_alone_has_no_mask_of_an_earlier_call() -> None:
    model, x = (
        osm.apply(bert().double().eval(), osm.PairNorm),
        torch.randn(*WORDS.shape, 16).double(),
    )
    layer = model.encoder.layer[0]
    before = layer(x)
    model(WORDS, attention_mask=PADDED)
    torch.testing.assert_close(layer(x), before, rtol=0, atol=1e-10)
    with pytest.raises(IndexError):
        model(WORDS + 1000, attention_mask=PADDED)  # there are not so many words
    torch.testing.assert_close(layer(x), before, rtol=0, atol=1e-10)
