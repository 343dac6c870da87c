"""What aggregators know of a graph convolution: its channels, rows, neighbours and linearity."""

from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.aggregators.base import Context, Inside
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.pyg import Networks

CLOSE = {"rtol": 0, "atol": 1e-10}
PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
MATCHING = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
CONTRANORM = partial(osm.ContraNorm, scale=0.3)
SAMPLED = torch.tensor([[1, 4, 6, 0, 5], [0, 0, 1, 2, 2]])  # sources and targets, of which are 3


def features(num_nodes: int, channels: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_nodes, channels, generator=generator, dtype=torch.float64)


def applied(conv: nn.Module, *aggregators: object) -> nn.Module:
    """A convolution with aggregators, inside a model."""
    model = nn.ModuleList([conv, type(conv)(4, 4)]).double().eval()
    osm.apply(model, list(aggregators), blocks=[0])
    return conv


@torch.no_grad()
def test_in_a_sampled_graph_targets_are_neighbours_as_in_a_whole_one() -> None:
    """The first sources are the targets; only pairs of targets can be neighbours."""
    x = features(7, 4)
    conv = applied(pyg.SAGEConv(4, 4), CONTRANORM)
    edges = SAMPLED[:, SAMPLED[0] < 3]  # of targets among each other
    loops = torch.arange(3).expand(2, -1)
    context = Context(edges=torch.cat([edges.flip(0), loops], dim=1), num_nodes=3)
    found = conv((x, x[:3]), SAMPLED)
    named = conv(x=(x, x[:3]), edge_index=SAMPLED)
    plain = pyg.SAGEConv(4, 4).double()
    plain.load_state_dict(conv.state_dict())
    expected = CONTRANORM(4)(plain((x, x[:3]), SAMPLED), context)
    torch.testing.assert_close(found, expected, **CLOSE)
    assert torch.equal(found, named)
    every = CONTRANORM(4, mask_neighbours=False)(plain((x, x[:3]), SAMPLED), context)
    assert not torch.allclose(found, every)


@torch.no_grad()
@pytest.mark.parametrize("channels", [4, 5])
def test_targets_that_are_no_sources_have_no_neighbours(channels: int) -> None:
    conv = applied(pyg.SAGEConv((4, channels), 4), CONTRANORM)
    sources, targets = features(7, 4), features(3, channels, seed=1)
    plain = pyg.SAGEConv((4, channels), 4).double()
    plain.load_state_dict(conv.state_dict())
    loops = torch.arange(3).expand(2, -1)
    expected = CONTRANORM(4)(plain((sources, targets), SAMPLED), Context(edges=loops, num_nodes=3))
    torch.testing.assert_close(conv((sources, targets), SAMPLED), expected, **CLOSE)


class Scaled(Inside):
    """Scales the mixed tokens by a parameter for each channel."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, mixed: Tensor, v: Tensor, context: Context) -> Tensor:
        return mixed * self.factor


MIXED = {
    "gat": (lambda: pyg.GATConv(8, 4, heads=2), 4),
    "gat bipartite": (lambda: pyg.GATConv((8, 6), 4, heads=2), 4),
    "gat mean": (lambda: pyg.GATv2Conv(8, 4, heads=2, concat=False, share_weights=True), 4),
    "transformer": (lambda: pyg.TransformerConv(8, 4, heads=2, edge_dim=3), 4),
    "gcn": (lambda: pyg.GCNConv(8, 4), 4),
    "sage": (lambda: pyg.SAGEConv(8, 4), 8),
    "graph": (lambda: pyg.GraphConv(8, 4), 8),
    "gin": (lambda: pyg.GINConv(nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6))), 8),
    "tag": (lambda: pyg.TAGConv(8, 4), 8),
    "gated": (lambda: pyg.GatedGraphConv(8, 2), 8),
    "gcnii": (lambda: pyg.GCN2Conv(8, 0.1), 8),
}


@pytest.mark.parametrize("name", MIXED)
def test_dim_inside_is_that_of_the_values_in_a_head(name: str) -> None:
    """A call that finds it leaves the convolution, and random numbers, as they were."""
    build, dim = MIXED[name]
    torch.manual_seed(0)
    model = nn.ModuleList([build(), build()])
    state, drawn = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    osm.apply(model, Scaled)
    assert [len(conv.inside[0].factor) for conv in model] == [dim, dim]
    assert torch.equal(torch.get_rng_state(), drawn)
    osm.remove(model)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_dim_inside_and_after_may_differ() -> None:
    model = nn.ModuleList([pyg.SAGEConv(8, 4), pyg.SAGEConv(8, 4)])
    osm.apply(model, [Scaled, osm.LayerNorm], blocks=[0, 1])
    assert model[0](torch.randn(4, 8), PATH).shape == (4, 4)


def test_unknown_channels_inside_are_refused() -> None:
    model = nn.ModuleList(pyg.NNConv(4, 4, nn.Linear(2, 16)) for _ in range(2))
    with pytest.raises(InputError, match="^aggregator: cannot tell how many channels .* mixes"):
        osm.apply(model, Scaled)
    osm.apply(model, lambda: Scaled(4))


@torch.no_grad()
def test_centering_respects_a_gate_for_every_channel() -> None:
    """Rows then sum to 0 in every channel: a constant that is added to the values has no effect."""
    x, conv = features(4, 4), pyg.ResGatedGraphConv(4, 4)
    applied(conv, partial(osm.Centered, gamma=-1.0, row_sum=True))
    before = conv(x, PATH)
    conv.lin_value.bias += 100.0
    torch.testing.assert_close(conv(x, PATH), before, **CLOSE)


@pytest.mark.parametrize("values", ["random", "constant"])
def test_a_maximum_is_refused_whatever_graph_comes_first(values: str) -> None:
    """A maximum of one message is linear, so a matching cannot tell."""
    conv = applied(pyg.SAGEConv(4, 4, aggr="max"), osm.Centered)
    x = features(4, 4) if values == "random" else torch.ones(4, 4).double()
    conv(x, MATCHING)
    conv(x, torch.tensor([[1, 1], [0, 0]]))  # the same message twice
    for _ in range(2):
        with pytest.raises(InputError, match="SAGEConv does more than mix the values linearly"):
            conv(x, PATH)
    mean = applied(pyg.SAGEConv(4, 4), osm.Centered)
    for edges, known in ((MATCHING, False), (PATH, True), (MATCHING, True)):
        mean(x, edges)
        assert mean.inside.checked == known


def test_a_network_of_maxima_is_refused_when_it_is_built() -> None:
    x, options = torch.rand(4, 5), {"aggr": "max"}
    with pytest.raises(InputError, match="SAGEConv does more than mix the values linearly"):
        Networks([osm.Centered], x, PATH, 3, [0], conv="SAGEConv", options=options)
