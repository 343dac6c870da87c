"""Methods that drop nodes or messages of a graph, or put nodes on its edges."""

import copy
import io
from functools import partial

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from applied_convolutions import CLOSE, graph
from applied_models import EDGES, everything
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn.conv.gcn_conv import gcn_norm

import oversmoothing as osm

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
WEIGHTS = torch.rand(EDGES.shape[1], generator=torch.Generator().manual_seed(1)).double()
DROPS = {"drop_node": {"rate": 0.3}, "drop_message": {"rate": 0.3}, "half_hop": {"share": 0.6}}
NAMES = {"drop_node": "DropNode", "drop_message": "DropMessage", "half_hop": "HalfHop"}
EVERY = pytest.mark.parametrize("method", DROPS)
NETWORKS = {
    "gcn": lambda: pyg.GCN(8, 16, 3, 5),
    "sage": lambda: pyg.GraphSAGE(8, 16, 3, 5),
    "gat": lambda: pyg.GAT(8, 16, 3, 5, heads=2),
    "gin": lambda: pyg.GIN(8, 16, 3, 5),
}


def network(name: str = "gcn") -> nn.Module:
    torch.manual_seed(0)
    return NETWORKS[name]().double().eval()


@pytest.mark.parametrize("name", NETWORKS)
@EVERY
def test_evaluation_is_the_plain_network_and_training_learns(name: str, method: str) -> None:
    model = network(name)
    before, plain = everything(model), model(X, EDGES)
    osm.apply(model, method, **DROPS[method])
    assert torch.equal(model(X, EDGES), plain)
    model.train()
    torch.manual_seed(1)
    first, second = model(X, EDGES), model(x=X, edge_index=EDGES)
    assert not torch.allclose(first, plain) and not torch.allclose(first, second)
    second.square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in model.parameters())
    assert torch.equal(osm.remove(model.eval())(X, EDGES), plain) and everything(model) == before


@torch.no_grad()
def test_every_entry_of_every_message_is_dropped_apart() -> None:
    model = osm.apply(network(), "drop_message", rate=0.4, blocks=[0]).train()
    conv = model.convs[0]
    torch.manual_seed(5)
    found = conv(X, EDGES, WEIGHTS)
    edges, weights = gcn_norm(EDGES, WEIGHTS, 6)
    torch.manual_seed(5)
    messages = F.dropout(weights[:, None] * conv.lin(X)[edges[0]], 0.4)
    expected = torch.zeros_like(found).index_add(0, edges[1], messages) + conv.bias
    torch.testing.assert_close(found, expected, **CLOSE)


@torch.no_grad()
def test_dropped_nodes_send_nothing() -> None:
    model = osm.apply(network(), "drop_node", rate=0.4, blocks=[0]).train()
    torch.manual_seed(5)
    found = model.convs[0](X, EDGES, WEIGHTS)
    torch.manual_seed(5)
    kept = torch.rand(6, 1) >= 0.4
    assert 0 < kept.sum() < 6
    torch.testing.assert_close(found, network().convs[0](X * kept / 0.6, EDGES, WEIGHTS), **CLOSE)


@torch.no_grad()
def test_edges_between_other_nodes_of_one_number_are_no_loops() -> None:
    """They are dropped as all others are; in evaluation none is."""
    edges = torch.arange(1000).expand(2, -1)
    users, items = torch.randn(2, 1000, 4, generator=torch.Generator().manual_seed(0))
    drop, seen = osm.DropEdge(0.5), []
    assert drop(edges).all() and 400 < drop(edges + torch.tensor([[0], [1000]])).sum() < 600
    assert drop.eval()(edges.flip(1) + torch.tensor([[0], [1000]])).all()
    model = osm.apply(nn.ModuleList(pyg.SAGEConv(4, 4) for _ in range(2)), "drop_edge")
    for conv in model.train():
        conv.register_forward_pre_hook(
            lambda module, args, given: seen.append(given["edge_index"].shape[1]), with_kwargs=True
        )
    for given in ((users, items), (users, users), (users, None)):
        model[0](given, edges)
    assert 600 < seen[0] < 800 and seen[1:] == [1000, 1000]


@pytest.mark.parametrize("method", ["drop_node", "drop_edge", "drop_message"])
@torch.no_grad()
def test_the_order_of_arguments_by_name_does_not_matter(method: str) -> None:
    conv = osm.apply(network(), method, rate=0.4).train().convs[0]
    found = []
    for names in (("x", "edge_index"), ("edge_index", "x")):
        torch.manual_seed(0)
        found.append(conv(**{name: {"x": X, "edge_index": EDGES}[name] for name in names}))
    assert torch.equal(*found)


def upsampled(alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    """X, EDGES and WEIGHTS with a slow node on every edge, one by one."""
    x, edges, weights = [*X], [], []
    for (source, target), weight in zip(EDGES.T.tolist(), WEIGHTS):
        slow = len(x)
        x.append(alpha * X[source] + (1 - alpha) * X[target])
        edges += [(source, slow), (slow, target), (target, slow)]
        weights += [weight] * 3
    return torch.stack(x), torch.tensor(edges).T, torch.stack(weights)


@torch.no_grad()
def test_half_hop_runs_the_network_on_a_graph_with_slow_nodes() -> None:
    """Also with more methods, whose means then count slow nodes; self-loops stay."""
    for also in ([], ["pairnorm"]):
        model = osm.apply(network(), [partial(osm.HalfHop, alpha=0.3), *also])
        plain = osm.apply(network(), also) if also else network()
        x, edges, weights = upsampled(0.3)
        torch.testing.assert_close(
            model(X, EDGES, edge_weight=WEIGHTS), plain(x, edges, edge_weight=weights)[:6], **CLOSE
        )
    loops = torch.arange(6).expand(2, -1)
    assert torch.equal(osm.HalfHop()(X, loops).edge_index, loops)
    single = osm.apply(Single(network()), "half_hop")
    assert torch.equal(single(X, EDGES), single.inner(*osm.HalfHop()(X, EDGES)[:2])[:6, 0])
    pooled = Pooled(network())
    osm.apply(pooled, "half_hop")
    with pytest.raises(osm.InputError, match="^model: expected one output"):
        pooled(X, EDGES)
    with pytest.raises(osm.InputError, match="^model: "):
        osm.apply(network(), "half_hop")((X, X), EDGES)


class Single(nn.Module):
    """One number for each node, (N,)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index)[:, 0]


class Pooled(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index).mean(dim=0, keepdim=True)


@EVERY
@torch.no_grad()
def test_graphs_of_a_batch_do_not_mix(method: str) -> None:
    """Together with a method that reads which graph a node belongs to."""
    options = {} if method == "half_hop" else DROPS[method]
    torch.manual_seed(0)
    model = pyg.GCN(4, 4, 4).double().eval()
    osm.apply(model, [partial(getattr(osm, NAMES[method]), **options), osm.PairNorm])
    graphs = [graph(n, seed) for seed, n in enumerate((5, 8, 5))]
    batch = Batch.from_data_list(graphs)
    alone = [model(g.x, g.edge_index, batch=torch.zeros(len(g.x)).long()) for g in graphs]
    found = model(batch.x, batch.edge_index, batch=batch.batch)
    torch.testing.assert_close(found, torch.cat(alone), **CLOSE)


class Attending(nn.Module):
    """Attention within each graph, which needs the nodes of each to follow each other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        convs = (pyg.GPSConv(4, pyg.GCNConv(4, 4), heads=2, norm=None) for _ in range(3))
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index, batch)
        return x


@pytest.mark.parametrize("also", [[], ["pairnorm"], ["graphnorm"], ["diffgroupnorm"], ["centered"]])
@torch.no_grad()
def test_slow_nodes_follow_the_nodes_of_their_graph(also: list[str]) -> None:
    """Also if the nodes that are given do not; a graph alone is the graph with slow nodes."""
    model = osm.apply(Attending().double(), ["half_hop", *also]).eval()
    plain = osm.apply(Attending().double(), also).eval() if also else Attending().double().eval()
    graphs = [graph(n, seed) for seed, n in enumerate((5, 8, 6))]
    alone = []
    for g in graphs:
        slow = osm.HalfHop()(g.x, g.edge_index)
        out = plain(slow.x, slow.edge_index, torch.zeros(len(slow.x)).long())
        alone.append(out[: len(g.x)])
    data = Batch.from_data_list(graphs)
    found = model(data.x, data.edge_index, data.batch)
    torch.testing.assert_close(found, torch.cat(alone), **CLOSE)
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(0))
    edges = order.argsort()[data.edge_index]
    mixed = model(data.x[order], edges, data.batch[order])
    torch.testing.assert_close(mixed, found[order], **CLOSE)


@EVERY
def test_copies_files_recipes_and_compiled_networks_draw_the_same(method: str) -> None:
    model = osm.apply(network(), method, **DROPS[method]).train()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again = osm.restore(network(), osm.recipe(model)).train()
    found = []
    compiled = torch.compile(model, backend="eager")
    every = (copy.deepcopy(model), torch.load(file, weights_only=False), again, compiled)
    for made in (model, *every):
        torch.manual_seed(3)
        found.append(made(X, EDGES))
    torch.compiler.reset()
    assert all(torch.equal(found[0], other) for other in found[1:])


@torch.no_grad()
def test_they_act_beside_methods_inside_and_before() -> None:
    """A method inside that does nothing leaves the draws as they are."""
    model = osm.apply(network(), ["drop_message", "drop_node", "jumping", "centered"]).train()
    assert model(X, EDGES).isfinite().all()
    model = osm.apply(network(), ["drop_message", partial(osm.Centered, gamma=0.0)]).train()
    plain = osm.apply(network(), "drop_message").train()
    outs = []
    for made in (model, plain):
        made(X, EDGES)  # the first call checks the mixing
        torch.manual_seed(4)
        outs.append(made(X, EDGES))
    torch.testing.assert_close(*outs, **CLOSE)


@torch.no_grad()
def test_half_precision_keeps_its_type() -> None:
    for method in DROPS:
        model = osm.apply(network().bfloat16(), method, **DROPS[method]).train()
        assert model(X.bfloat16(), EDGES).dtype == torch.bfloat16
