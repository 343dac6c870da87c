"""Aggregators at torch-geometric's convolutions, of one graph or of several in a batch."""

from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from applied_convolutions import CLOSE, Network, graph, network
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_torch_csr_tensor

import oversmoothing as osm
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.gcn import GCN

CONVS = {
    "gcn": lambda: pyg.GCNConv(4, 4),
    "sage": lambda: pyg.SAGEConv(4, 4),
    "gat": lambda: pyg.GATConv(4, 2, heads=2),
    "gatv2": lambda: pyg.GATv2Conv(4, 2, heads=2, share_weights=True),
    "gin": lambda: pyg.GINConv(nn.Linear(4, 4)),
    "transformer": lambda: pyg.TransformerConv(4, 2, heads=2),
    "graph": lambda: pyg.GraphConv(4, 4),
}
ALL = pytest.mark.parametrize("conv", CONVS.values(), ids=CONVS)


@ALL
@torch.no_grad()
def test_centering_all_rows_is_mixing_centered_values(conv) -> None:
    """(M − r 11ᵀ/n) V = M (V − 1v̄ᵀ) for the row sums r of any mixing M."""

    def center(conv: nn.Module, inputs: tuple) -> tuple:
        edges, size, kwargs = inputs
        name = "value" if "value" in kwargs else "x"
        parts = kwargs[name] if isinstance(kwargs[name], tuple) else (kwargs[name],)
        parts = tuple(v - v.mean(dim=0) for v in parts)
        return edges, size, kwargs | {name: parts if len(parts) > 1 else parts[0]}

    data, plain = graph(7), Network(conv).double().eval()
    centered = network(conv, partial(osm.Centered, gamma=-1.0, row_sum=True))
    for layer in plain.layers:
        layer.register_propagate_forward_pre_hook(center)
    expected = plain(data.x, data.edge_index)
    torch.testing.assert_close(centered(data.x, data.edge_index), expected, **CLOSE)


@ALL
@torch.no_grad()
def test_the_order_of_nodes_does_not_matter(conv) -> None:
    model = network(conv, osm.Centered, partial(osm.ContraNorm, scale=0.3), osm.PairNorm)
    data, order = graph(7), torch.tensor([3, 0, 6, 5, 1, 2, 4])
    permuted = model(data.x[order], order.argsort()[data.edge_index])
    torch.testing.assert_close(permuted, model(data.x, data.edge_index)[order], **CLOSE)


@ALL
@torch.no_grad()
def test_a_batch_of_graphs_is_graph_by_graph(conv) -> None:
    model = network(conv, osm.Centered, partial(osm.ContraNorm, scale=0.3), osm.PairNorm)
    graphs = [graph(n, seed) for seed, n in enumerate((5, 8, 5, 1))]
    batch = Batch.from_data_list(graphs)
    alone = torch.cat([model(g.x, g.edge_index) for g in graphs])
    together = model(batch.x, batch.edge_index, batch.batch)
    torch.testing.assert_close(together, alone, **CLOSE)
    assert not torch.allclose(model(batch.x, batch.edge_index), alone)


@torch.no_grad()
def test_the_graphs_of_a_batch_are_found_in_any_argument() -> None:
    class OnData(Network):
        def forward(self, data: Data) -> Tensor:
            return super().forward(data.x, data.edge_index)

    class OnSample(Network):
        def forward(self, sample: Data) -> Tensor:
            return super().forward(sample.x, sample.edge_index)

    class OnIndex(Network):
        def forward(self, x: Tensor, edge_index: Tensor, batch_index: Tensor) -> Tensor:
            return super().forward(x, edge_index)

    batch = Batch.from_data_list([graph(5), graph(5, seed=1)])
    expected = network(CONVS["gcn"], osm.Centered)(batch.x, batch.edge_index, batch.batch)
    for kind, given in (
        (OnData, [batch]),
        (OnSample, [batch]),
        (OnIndex, [batch.x, batch.edge_index, batch.batch]),
    ):
        model = osm.apply(kind(CONVS["gcn"]).double().eval(), "centered")
        assert torch.equal(model(*given), expected)


@torch.no_grad()
def test_pairnorm_behind_every_convolution_but_the_last() -> None:
    means: list[Tensor] = []
    data = graph(7)
    for blocks, count in (("all", 2), ([0, -1], 2), ("last-1", 1)):
        model = network(CONVS["gcn"], osm.PairNorm, blocks=blocks)
        centered = [layer for layer in model.layers if hasattr(layer, "after")]
        for layer in centered:
            layer.register_forward_hook(lambda m, args, out: means.append(out.mean(dim=0)))
        model(data.x, data.edge_index)
        assert len(centered) == count
    torch.testing.assert_close(torch.stack(means), torch.zeros(5, 4).double(), **CLOSE)


@torch.no_grad()
def test_a_pattern_of_the_convolutions_is_the_default() -> None:
    """Behind a convolution, ContraNorm leaves out neighbours however the place was named."""
    data, contranorm = graph(7), partial(osm.ContraNorm, scale=0.3)
    expected = network(CONVS["gcn"], contranorm)(data.x, data.edge_index)
    model = network(CONVS["gcn"], contranorm, where="layers.[01]")
    assert torch.equal(model(data.x, data.edge_index), expected)
    everywhere = network(CONVS["gcn"], partial(contranorm, mask_neighbours=False))
    assert not torch.allclose(everywhere(data.x, data.edge_index), expected)
    for blocks in ("last-1", [0], "rubbish"):
        with pytest.raises(InputError, match=r"^blocks: where= is a pattern .*layers\.0; leave"):
            osm.apply(Network(CONVS["gcn"]), "contranorm", where="layers.[01]", blocks=blocks)


@torch.no_grad()
def test_contranorm_compares_no_neighbours_in_any_format_of_edges() -> None:
    data, conv = graph(7), pyg.GraphConv(4, 4).double()
    aggregator = osm.ContraNorm(4, scale=0.3)
    loops = torch.arange(7).expand(2, -1)
    context = osm.Context(edges=torch.cat([data.edge_index, loops], dim=1), num_nodes=7)
    expected = aggregator(conv(data.x, data.edge_index), context)
    model = nn.ModuleList([conv, pyg.GraphConv(4, 4)])
    osm.apply(model, "contranorm", scale=0.3)
    sparse = to_torch_csr_tensor(data.edge_index.flip(0), size=(7, 7))
    for edges in (data.edge_index, sparse.double()):
        torch.testing.assert_close(conv(data.x, edges), expected, **CLOSE)


@torch.no_grad()
def test_the_repos_gcn_is_an_applied_one() -> None:
    data = graph(9)
    x, edges = data.x.float(), data.edge_index
    for aggregators in ([osm.Centered], [osm.PairNorm], [partial(osm.ContraNorm, scale=0.3)]):
        own = GCN(aggregators, x.to_sparse_csr(), edges, 3, [0], depth=4, hidden=8).eval()
        model = pyg.GCN(4, 8, 4, 3, normalize=False).eval()
        for conv, weight, bias in zip(model.convs, own.weights, own.biases):
            conv.lin.weight.copy_(weight[0].T)
            conv.bias.copy_(bias[0, 0])
        osm.apply(model, aggregators)
        loops = torch.cat([edges, torch.arange(9).expand(2, -1)], dim=1)
        degrees = torch.bincount(loops[1]).float()
        found = model(x, loops, edge_weight=1 / degrees[loops[1]])
        torch.testing.assert_close(found, own()[0], rtol=0, atol=1e-6)


def test_explaining_and_compiling_see_the_aggregators() -> None:
    """torch-geometric changes or skips the usual ``propagate`` there."""
    data, model = graph(7), network(CONVS["gcn"], osm.Centered)
    expected = model(data.x, data.edge_index)
    for layer in model.layers:
        layer.explain, layer._edge_mask = True, torch.full((len(data.edge_index[0]) + 7,), 100.0)
        layer._loop_mask, layer._apply_sigmoid = slice(None), True
    torch.testing.assert_close(model(data.x, data.edge_index), expected, **CLOSE)
    osm.remove(model)
    assert not torch.allclose(model(data.x, data.edge_index), expected)


class Updating(pyg.SAGEConv):
    """A convolution that does more than mix in ``propagate``."""

    def update(self, aggr_out: Tensor) -> Tensor:
        return aggr_out.relu()


@pytest.mark.parametrize(
    "conv",
    [
        lambda: Updating(4, 4),
        lambda: pyg.SAGEConv(4, 4, aggr="max"),
        lambda: pyg.EdgeConv(nn.Linear(8, 4)),
        lambda: pyg.CGConv(4),
        lambda: pyg.GENConv(4, 4),
        lambda: pyg.FeaStConv(4, 4),
    ],
)
def test_what_is_no_product_of_a_matrix_and_values_has_no_inside(conv) -> None:
    data, model = graph(7), network(conv, osm.Centered)
    said = "mixes the channels of its messages" if "FeaSt" in str(conv()) else "mix the values lin"
    for _ in range(2):  # not only at the first call
        with pytest.raises(InputError, match=said):
            model(data.x, data.edge_index)


def test_a_factory_can_know_its_channels() -> None:
    model = nn.ModuleList(pyg.APPNP(3, 0.1) for _ in range(2))
    with pytest.raises(InputError, match="give a factory that knows"):
        osm.apply(model, "contranorm")
    osm.apply(model, partial(osm.ContraNorm, dim=5, learnable=True))
    scales = [m.scale for m in model.modules() if isinstance(m, osm.ContraNorm)]
    assert scales and all(len(scale) == 5 for scale in scales)


def test_a_convolution_forgets_the_product_that_it_kept() -> None:
    data = graph(7)
    conv = pyg.SGConv(4, 4, cached=True).double().eval()
    model, plain = nn.ModuleList([conv, pyg.SGConv(4, 4)]), conv(data.x, data.edge_index)
    osm.apply(model, "centered")
    assert not torch.allclose(conv(data.x, data.edge_index), plain)
    osm.remove(model)
    assert torch.equal(conv(data.x, data.edge_index), plain)


def test_bad_input() -> None:
    data = graph(7)
    model = network(lambda: pyg.SAGEConv((4, 4), 4), osm.Centered)
    few = data.x[:5]
    with pytest.raises(InputError, match="SAGEConv turns values .*no bipartite graph"):
        model.layers[0]((data.x, few), torch.tensor([[6, 5, 0], [0, 1, 4]]))
    with pytest.raises(InputError, match="External acts instead .* offers only: inside, after"):
        network(CONVS["gcn"], osm.External)
    with pytest.raises(InputError, match="where: at graph convolutions, leave it out"):
        network(CONVS["gcn"], osm.PairNorm, where="branch")
    model = network(CONVS["gcn"], osm.PairNorm)
    with pytest.raises(InputError, match="batch: the one of the model's last call has 9 nodes"):
        model(data.x, data.edge_index, torch.zeros(9, dtype=torch.long))
