"""Centering by row sums: dropout of the mixing, and learned weights of edges."""

from functools import partial

import torch
import torch_geometric.nn as pyg
from applied_convolutions import CLOSE, graph, network
from torch import nn

import oversmoothing as osm


def test_row_sums_see_the_dropout_of_the_mixing() -> None:
    """Rows that sum to 0 leave no trace of a constant that is added to all values."""
    data = graph(9)
    conv = pyg.TransformerConv(4, 4, dropout=0.5, root_weight=False).double().train()
    model = nn.ModuleList([conv, pyg.TransformerConv(4, 4)])
    osm.apply(model, "centered", row_sum=True)
    outputs = []
    for shift in (0.0, 100.0):
        torch.manual_seed(3)
        with torch.no_grad():
            conv.lin_value.bias += shift
        outputs.append(conv(data.x, data.edge_index))
        after = torch.rand(1)
    torch.manual_seed(3)
    osm.remove(model)
    conv(data.x, data.edge_index)
    torch.testing.assert_close(*outputs, **CLOSE)
    assert torch.equal(after, torch.rand(1))  # no more random numbers than without aggregators


def test_row_sums_have_gradients() -> None:
    """Learned edge weights also change the row sums."""
    data, model = (
        graph(7),
        network(lambda: pyg.GraphConv(4, 4), partial(osm.Centered, row_sum=True)),
    )
    weights = torch.rand(data.edge_index.shape[1], dtype=torch.float64, requires_grad=True)
    first = model.layers[0]
    assert torch.autograd.gradcheck(lambda w: first(data.x, data.edge_index, w), weights)
