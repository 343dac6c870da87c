"""Aggregators at torch-geometric's convolutions, of one graph or of several in a batch."""

from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from applied_convolutions import CLOSE, Network, graph, network
from applied_models import Scale
from torch import Tensor, nn
from torch.export import Dim
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_torch_csr_tensor

import oversmoothing as osm
from oversmoothing.adapters.convolutions import AfterConvolution
from oversmoothing.adapters.site import placed_in
from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.batchnorm import BatchNorm
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.pyg import Networks

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
def test_a_batch_of_graphs_is_graph_by_graph(conv) -> None:
    after = (partial(osm.ContraNorm, scale=0.3), osm.GraphNorm, osm.PairNorm)
    model = network(conv, osm.Centered, *after)
    graphs = [graph(n, seed) for seed, n in enumerate((5, 8, 5, 1))]
    batch = Batch.from_data_list(graphs)
    alone = torch.cat([model(g.x, g.edge_index) for g in graphs])
    together = model(batch.x, batch.edge_index, batch.batch)
    torch.testing.assert_close(together, alone, **CLOSE)
    assert not torch.allclose(model(batch.x, batch.edge_index), alone)


@torch.no_grad()
@pytest.mark.parametrize("method", ["attn_scale", "shaped_attention"])
def test_heads_have_their_own_parameters_in_a_batch_of_graphs(method: str) -> None:
    model = osm.apply(Network(CONVS["gat"]).double().eval(), method)
    for number, parameter in enumerate(model.parameters()):
        parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter) + number / 9)
    graphs = [graph(n, seed) for seed, n in enumerate((5, 8, 5, 1))]  # 2 heads, 1 and 2 graphs
    batch = Batch.from_data_list(graphs)
    alone = torch.cat([model(g.x, g.edge_index) for g in graphs])
    torch.testing.assert_close(model(batch.x, batch.edge_index, batch.batch), alone, **CLOSE)


@torch.no_grad()
def test_statistics_of_a_batch_are_those_of_all_its_graphs() -> None:
    batch = Batch.from_data_list([graph(n, seed) for seed, n in enumerate((5, 8, 5, 1))])
    model = network(CONVS["gcn"], BatchNorm).train()
    alone = model(batch.x, batch.edge_index)
    torch.testing.assert_close(model(batch.x, batch.edge_index, batch.batch), alone, **CLOSE)
    both = network(CONVS["gcn"], osm.PairNorm, BatchNorm).train()
    found = both(batch.x, batch.edge_index, batch.batch)
    assert not torch.allclose(found, both(batch.x, batch.edge_index))  # PairNorm is by graph


@torch.no_grad()
def test_the_graphs_of_a_batch_are_found_in_any_argument() -> None:
    class OnSample(Network):
        def forward(self, sample: Data) -> Tensor:
            return super().forward(sample.x, sample.edge_index)

    class OnIndex(Network):
        def forward(self, x: Tensor, edge_index: Tensor, batch_index: Tensor) -> Tensor:
            return super().forward(x, edge_index)

    batch = Batch.from_data_list([graph(5), graph(5, seed=1)])
    given = batch.x, batch.edge_index, batch.batch
    expected = network(CONVS["gcn"], osm.Centered)(*given)
    for kind, inputs in ((OnSample, [batch]), (OnIndex, given)):
        model = osm.apply(kind(CONVS["gcn"]).double().eval(), "centered")
        assert torch.equal(model(*inputs), expected)


@torch.no_grad()
def test_methods_are_behind_every_convolution_but_the_last_unless_it_is_named() -> None:
    data = graph(7)
    for blocks, expected in (("all", [0, 1]), ([0, -1], [0, 2]), ("last-1", [2])):
        model = network(CONVS["gcn"], osm.PairNorm, blocks=blocks)
        centered = [i for i, layer in enumerate(model.layers) if hasattr(layer, "after")]
        mean = model.layers[centered[0]](data.x, data.edge_index).mean(dim=0)
        torch.testing.assert_close(mean, torch.zeros(4).double(), **CLOSE)
        assert centered == expected


@pytest.mark.parametrize("jk", [None, "cat", "max"])
def test_a_convolution_that_a_linear_map_reads_is_not_the_end(jk: str | None) -> None:
    """Such as one before pooling and a classifier: a map registered before it does not read it."""
    gin = pyg.GIN(4, 8, num_layers=3, jk=jk)
    alone, pooled = nn.ModuleDict({"enter": nn.Linear(8, 8), "gnn": gin}), nn.Sequential(gin)
    pooled.append(nn.BatchNorm1d(8)).append(pyg.MLP([8, 8, 2]))
    for model, count in ((alone, 3 if jk else 2), (pooled, 3)):
        osm.apply(model, osm.MeanNorm)
        placed = [place for place in placed_in(model) if isinstance(place.site, AfterConvolution)]
        assert len(placed) == count
        osm.remove(model)


@torch.no_grad()
def test_a_pattern_of_the_convolutions_is_the_default() -> None:
    """Behind a convolution, ContraNorm leaves out neighbours however the place was named."""
    data, contranorm = graph(7), partial(osm.ContraNorm, scale=0.3)
    expected = network(CONVS["gcn"], contranorm)(data.x, data.edge_index)
    model = network(CONVS["gcn"], contranorm, where="layers.[01]")
    assert torch.equal(model(data.x, data.edge_index), expected)
    everywhere = network(CONVS["gcn"], partial(contranorm, mask_neighbours=False))
    assert not torch.allclose(everywhere(data.x, data.edge_index), expected)


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
        lambda: pyg.EdgeConv(nn.Linear(8, 4)),
        lambda: pyg.CGConv(4),
        lambda: pyg.GENConv(4, 4),
        lambda: pyg.FeaStConv(4, 4),
    ],
)
def test_what_is_no_product_of_a_matrix_and_values_has_no_inside(conv) -> None:
    data, model = graph(7), network(conv, osm.Centered)
    for _ in range(2):  # not only at the first call
        with pytest.raises(InputError, match="^model: "):
            model(data.x, data.edge_index)


def test_a_factory_can_know_its_channels() -> None:
    model = nn.ModuleList(pyg.APPNP(3, 0.1) for _ in range(2))
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
@pytest.mark.parametrize("channels", [None, 4, 5])
def test_targets_are_neighbours_only_where_they_are_sources(channels: int | None) -> None:
    """In a sampled graph (None) the first sources are the targets; else they are other nodes."""
    sources = features(7, 4)
    targets = sources[:3] if channels is None else features(3, channels, seed=1)
    conv = applied(pyg.SAGEConv((4, channels or 4), 4), CONTRANORM)
    plain = pyg.SAGEConv((4, channels or 4), 4).double()
    plain.load_state_dict(conv.state_dict())
    edges = torch.arange(3).expand(2, -1)
    if channels is None:
        edges = torch.cat([edges, SAMPLED[:, SAMPLED[0] < 3].flip(0)], dim=1)
    mixed = plain((sources, targets), SAMPLED)
    expected = CONTRANORM(4)(mixed, Context(edges=edges, num_nodes=3))
    found = conv((sources, targets), SAMPLED)
    torch.testing.assert_close(found, expected, **CLOSE)
    assert torch.equal(found, conv(x=(sources, targets), edge_index=SAMPLED))
    assert not torch.allclose(CONTRANORM(4, mask_neighbours=False)(mixed), expected)


CHANNELS = {
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


@pytest.mark.parametrize("name", CHANNELS)
def test_dim_inside_is_that_of_the_values_in_a_head(name: str) -> None:
    """A call that finds it leaves the convolution, and random numbers, as they were."""
    build, dim = CHANNELS[name]
    torch.manual_seed(0)
    model = nn.ModuleList([build(), build()])
    state, drawn = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    osm.apply(model, [Scale, osm.LayerNorm])  # inside and after, where channels may be others
    assert [len(conv.inside[0].scale) for conv in model] == [dim, dim]
    if name == "sage":
        assert model[0](torch.randn(4, 8), PATH).shape == (4, 4)
    assert torch.equal(torch.get_rng_state(), drawn) or name == "sage"
    osm.remove(model)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


GATED = {
    "a gate for every channel": lambda: pyg.ResGatedGraphConv(4, 4),
    "dropout of the mixing": lambda: pyg.TransformerConv(4, 4, dropout=0.5, root_weight=False),
}


@pytest.mark.parametrize("kind", GATED)
@torch.no_grad()
def test_rows_sum_to_0_with_gates_and_dropout(kind: str) -> None:
    """So a constant that is added to all values leaves no trace; no more random numbers than
    without aggregators are drawn."""
    data, conv = graph(9), GATED[kind]()
    applied(conv, partial(osm.Centered, gamma=-1.0, row_sum=True)).train()
    torch.manual_seed(3)
    before, after = conv(data.x, data.edge_index), torch.rand(1)
    conv.lin_value.bias += 100.0
    torch.manual_seed(3)
    torch.testing.assert_close(conv(data.x, data.edge_index), before, **CLOSE)
    torch.manual_seed(3)
    osm.remove(conv)
    conv(data.x, data.edge_index)
    assert torch.equal(after, torch.rand(1))


def test_a_maximum_is_refused_whatever_graph_comes_first() -> None:
    """A maximum of one message is linear, so a matching cannot tell."""
    conv = applied(pyg.SAGEConv(4, 4, aggr="max"), osm.Centered)
    x = features(4, 4)
    conv(x, MATCHING)
    conv(x, torch.tensor([[1, 1], [0, 0]]))  # the same message twice
    for given in (x, torch.ones_like(x)):
        with pytest.raises(InputError, match="^model: SAGEConv "):
            conv(given, PATH)
    mean = applied(pyg.SAGEConv(4, 4), osm.Centered)
    for edges, known in ((MATCHING, False), (PATH, True), (MATCHING, True)):
        mean(x, edges)
        assert mean.inside.checked == known


def test_a_network_of_maxima_is_refused_when_it_is_built() -> None:
    x, options = torch.rand(4, 5), {"aggr": "max"}
    with pytest.raises(InputError, match="^model: SAGEConv "):
        Networks([osm.Centered], x, PATH, 3, [0], conv="SAGEConv", options=options)


def test_row_sums_have_gradients() -> None:
    """Learned edge weights also change the row sums."""
    data = graph(7)
    model = network(lambda: pyg.GraphConv(4, 4), partial(osm.Centered, row_sum=True))
    weights = torch.rand(data.edge_index.shape[1], dtype=torch.float64, requires_grad=True)
    first = model.layers[0]
    assert torch.autograd.gradcheck(lambda w: first(data.x, data.edge_index, w), weights)


@torch.no_grad()
def test_several_networks_at_once_need_a_call_that_checks_the_mixing() -> None:
    data, models = graph(7), [network(CONVS["gcn"], osm.Centered).eval() for _ in range(2)]
    tensors = torch.func.stack_module_state(models)

    def call(*own: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(models[0], own, (data.x, data.edge_index))

    with pytest.raises(InputError, match="^model: "):
        torch.vmap(call)(*tensors)
    expected = torch.stack([model(data.x, data.edge_index) for model in models])
    torch.testing.assert_close(torch.vmap(call)(*tensors), expected, **CLOSE)


@pytest.mark.filterwarnings("ignore")  # the tracer's
@pytest.mark.parametrize(
    ("method", "several"), [("pairnorm", True), ("contranorm", False), ("batchnorm", True)]
)
@torch.no_grad()
def test_graphs_of_other_sizes_are_exported_or_refused(method: str, several: bool) -> None:
    """Statistics of a whole batch need no sizes."""
    model = osm.apply(pyg.GCN(4, 4, 3).eval(), method)
    sizes = [(5, 12), (7, 20)]
    (x, edges, batch), other = (
        (torch.randn(n, 4), torch.randint(n, (2, E)), torch.arange(n) // 3) for n, E in sizes
    )
    batch = {"batch": batch} if several else {}
    model(x, edges, **batch)
    if method != "batchnorm":
        with pytest.raises(InputError, match="^(batch|edges): "):
            torch.export.export(model, (x, edges), batch, strict=False)
        with pytest.raises(InputError, match="^(batch|edges): "):
            torch.jit.trace(model, example_kwarg_inputs={"x": x, "edge_index": edges, **batch})
        return
    axes = {"x": {0: Dim.AUTO}, "edge_index": {1: Dim.AUTO}, "batch": {0: Dim.AUTO}}
    exported = torch.export.export(model, (x, edges), batch, dynamic_shapes=axes, strict=False)
    found = exported.module()(*other[:2], batch=other[2])
    torch.testing.assert_close(found, model(*other[:2], batch=other[2]), **CLOSE)
