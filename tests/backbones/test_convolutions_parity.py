"""Networks of torch-geometric's convolutions against the repository's own networks."""

from functools import partial

import pytest
import torch
from small_pyg import CLASSES, graph, networks
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.lab.backbones.gcn import GCN, GCNII, JKNet
from oversmoothing.lab.backbones.pyg import Networks
from oversmoothing.lab.tasks.nodes import FullBatchAdam

CLOSE = {"rtol": 0, "atol": 1e-10}


def copied(own: nn.Module, model: Networks) -> Networks:
    """Gives the networks the weights of the repository's own ones."""
    for index, net in enumerate(model.nets):
        convs = [layer.conv for layer in net.layers]
        for conv, weight in zip(convs, own.weights, strict=True):
            matrix = conv.weight1 if hasattr(conv, "weight1") else conv.lin.weight
            transposed = hasattr(conv, "lin")
            matrix.data = (weight[index].T if transposed else weight[index]).clone()
        for conv, bias in zip(convs, own.biases):
            conv.bias.data = bias[index, 0].clone()
        for linear, dense in zip(net.dense.values(), own.dense, strict=True):
            linear.weight.data, linear.bias.data = dense.weight[index].T, dense.bias[index, 0]
    return model


def assert_equal(own: nn.Module, model: Networks) -> None:
    """Outputs of all layers, logits and gradients, in training mode."""
    hidden: tuple[list[Tensor], list[Tensor]] = [], []
    outputs = [network.train()(taken) for network, taken in zip((own, model), hidden)]
    torch.testing.assert_close(hidden[1], hidden[0], **CLOSE)
    torch.testing.assert_close(outputs[1], outputs[0], **CLOSE)
    for out in outputs:
        out.logsumexp(dim=-1).square().sum().backward()
    for index, net in enumerate(model.nets):
        for layer, weight in zip(net.layers, own.weights):
            found = getattr(layer.conv, "weight1", None)
            found = layer.conv.lin.weight.grad.T if found is None else found.grad
            torch.testing.assert_close(found, weight.grad[index], **CLOSE)


STACKS = {
    "vanilla": [],
    "centered": [partial(osm.Centered, gamma=-0.7, row_sum=True)],
    "after": [partial(osm.ContraNorm, scale=0.3), osm.LayerNorm],
    "both": [osm.Centered, osm.PairNorm],
}


every_stack = pytest.mark.parametrize("stack", STACKS)


every_adjacency = pytest.mark.parametrize("adjacency", ["row", "symmetric"])


@every_stack
@every_adjacency
@pytest.mark.parametrize("weighted", [False, True])
def test_gcnconv_is_backbone_gcn(stack: str, adjacency: str, weighted: bool, double: None) -> None:
    x, edges = graph()
    weights = torch.rand(edges.shape[1]) + 0.5 if weighted else None
    given = {"aggregators": STACKS[stack], "edges": edges, "num_classes": CLASSES, "seeds": [0, 1]}
    given |= {"depth": 5, "hidden": 8, "adjacency": adjacency, "weights": weights, "dropout": 0.0}
    every = 1 + weighted  # how many layers a residual connection skips
    own = GCN(x=x.to_sparse_csr(), residual=every, **given)
    model = Networks(x=x.to_sparse_csr(), skip="residual", interval=every, **given)
    assert_equal(own, copied(own, model))


@every_stack
@every_adjacency
def test_gcn2conv_is_backbone_gcnii(stack: str, adjacency: str, double: None) -> None:
    x, edges = graph()
    given = {"aggregators": STACKS[stack], "edges": edges, "num_classes": CLASSES, "seeds": [0, 1]}
    given |= {"depth": 5, "hidden": 8, "adjacency": adjacency, "dropout": 0.0, "x": x}
    own, model = GCNII(**given), Networks(conv="GCN2Conv", **given)
    assert_equal(own, copied(own, model))
    recipe = FullBatchAdam(weight_decay=0.5, dense_weight_decay=0.1)
    for network in (own, model):
        torch.optim.Adam(recipe.groups(network), lr=0.01, eps=1e-3).step()
    torch.testing.assert_close(model(), own(), **CLOSE)


@pytest.mark.parametrize("jumping", ["cat", "max"])
def test_jumping_knowledge_is_backbone_jknet(jumping: str, double: None) -> None:
    x, edges = graph()
    given = {"aggregators": [osm.PairNorm], "edges": edges, "num_classes": CLASSES, "seeds": [2]}
    given |= {"depth": 4, "hidden": 8, "adjacency": "row", "dropout": 0.0, "x": x}
    own, model = JKNet(jumping=jumping, **given), Networks(jumping=jumping, **given)
    assert_equal(own, copied(own, model))


def test_the_own_normalisation_of_gcnconv_is_the_symmetric_one(double: None) -> None:
    x, edges = graph()
    edges = edges[:, edges[0] != edges[1]]  # a self-loop of the graph counts twice, or once
    outputs = [
        Networks([], x, edges, CLASSES, [0], adjacency=kind, depth=3).eval()()
        for kind in ("conv", "symmetric")
    ]
    torch.testing.assert_close(*outputs, **CLOSE)


def test_a_convolution_without_weights_has_an_identity_map(double: None) -> None:
    """GCNII's formula: with the plain sum of neighbours, and with GCN2Conv's option."""
    options = {"depth": 4, "dropout": 0.0, "alpha": 0.3, "lam": 0.8}
    plain = {"normalize": False, "add_self_loops": False}
    reference = networks("GCN2Conv", options=plain, **options)
    model = networks("SimpleConv", options={"aggr": "sum"}, skip="initial", **options)
    for theirs, ours in zip(reference.nets[0].layers, model.nets[0].layers):
        ours.identity.linear.weight.data = theirs.conv.weight1.data.T
    model.nets[0].dense.load_state_dict(reference.nets[0].dense.state_dict())
    torch.testing.assert_close(model(), reference(), **CLOSE)
