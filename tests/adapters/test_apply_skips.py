"""Skip connections, scaled branches and dropped edges, against models that have them built in."""

from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from applied_convolutions import CLOSE, graph
from applied_models import CASES, EDGES, bert, everything, gpt2, vit
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch

import oversmoothing as osm
from oversmoothing.aggregators.drop_edge import drop_edges

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def gcn(kind: type = pyg.GCN, **options: object) -> nn.Module:
    torch.manual_seed(0)
    return kind(8, 16, 5, 3, **options).double().eval()


def by_hand(model: nn.Module, method: str) -> Tensor:
    """A network of five convolutions with skip connections before ReLU."""
    inputs = [model.convs[0](X, EDGES).relu()]
    outputs = inputs[:]
    for layer, conv in enumerate(model.convs[1:-1], start=1):
        x = conv(inputs[-1], EDGES)
        if method == "residual":
            x = x + 0.5 * inputs[-1]
        elif method == "pre-activation":
            layer_of_deepergcn = pyg.DeepGCNLayer(conv, act=nn.ReLU(), block="res+")
            outputs.append(x := layer_of_deepergcn(outputs[-1], EDGES))
        elif method == "every second" and layer % 2 == 0:
            x = x + inputs[-2]
        elif method == "initial_residual":
            x = 0.5 * x + 0.5 * inputs[0]
        inputs.append(x.relu())
    if method == "jumping":
        inputs.append(pyg.JumpingKnowledge("max")(inputs))
    return model.convs[-1](inputs[-1], EDGES)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("pre-activation", {}),
        ("residual", {"scale": 0.5, "pre_activation": False}),
        ("every second", {"interval": 2, "pre_activation": False}),
        ("every second", {"interval": 2}),  # the only one there adds X_1 in both forms
        ("initial_residual", {"lam": 0.0}),
        ("jumping", {}),
    ],
)
@pytest.mark.parametrize("kind", [pyg.GCN, pyg.EdgeCNN])  # EdgeCNN's layers tell no width
@torch.no_grad()
def test_a_gcn_with_skip_connections_is_that_written_by_hand(
    kind: type, method: str, options: dict
) -> None:
    model = gcn(kind)
    before, plain = everything(model), model(X, EDGES)
    skips = ("initial_residual", "jumping")
    osm.apply(model, method if method in skips else "residual", **options)
    torch.testing.assert_close(model(X, EDGES), by_hand(gcn(kind), method), **CLOSE)
    assert not torch.allclose(model(X, EDGES), plain)
    osm.remove(model)
    assert torch.equal(model(X, EDGES), plain) and everything(model) == before


@pytest.mark.parametrize("method", ["residual", "initial_residual", "jumping"])
@torch.no_grad()
def test_skip_connections_follow_autocast(method: str) -> None:
    """Where products are in half precision and the inputs of layers are not."""
    model = osm.apply(gcn(), method)
    expected = model(X, EDGES)
    with torch.autocast("cpu", torch.bfloat16):
        found = model.float()(X.float(), EDGES)
    torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.02)


class Stack(nn.Module):
    """Convolutions, then ReLU; GCNII's also get the input of the first one."""

    def __init__(self, convs: list[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = x
        for conv in self.convs:
            of_gcnii = isinstance(conv, pyg.GCN2Conv)
            x = (conv(x, first, edge_index) if of_gcnii else conv(x, edge_index)).relu()
        return x


def test_concatenated_inputs_start_as_the_plain_network_and_learn_their_weights() -> None:
    """As torch-geometric's, whose linear layer takes the place of the last convolution's."""
    for kind in (pyg.EdgeCNN, pyg.GCN):
        model, plain = osm.apply(gcn(kind), "jumping", mode="cat"), gcn(kind)
        torch.testing.assert_close(model(X, EDGES), plain(X, EDGES), **CLOSE)
    weight = model.convs[-1].before[0].linear.weight
    assert weight.shape == (16, 4 * 16)
    weight.data = torch.randn(16, 64, generator=torch.Generator().manual_seed(1)).double()
    inputs = [X]
    for conv in plain.convs[:-1]:
        inputs.append(conv(inputs[-1], EDGES).relu())
    every = pyg.JumpingKnowledge("cat")(inputs[1:])
    found = model(X, EDGES)
    torch.testing.assert_close(found, plain.convs[-1](every @ weight.T, EDGES), **CLOSE)
    found.square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())
    assert sum(isinstance(m, osm.Jumping) for m in model.modules()) == 1
    alone = osm.Jumping("cat", channels=8, layers=2).double()
    with pytest.raises(osm.InputError, match="^aggregator: "):
        alone(X, osm.Context(inputs=(X,)))


def test_propagation_with_an_initial_residual_and_identity_map_is_gcnii() -> None:
    options = {"alpha": 0.2, "theta": 0.5, "add_self_loops": False}
    theirs = Stack([pyg.GCN2Conv(8, layer=n, **options) for n in (1, 2, 3)]).double()
    method = partial(osm.InitialResidual, dim=8, alpha=0.2, lam=0.5)
    ours = osm.apply(Stack([pyg.LGConv() for _ in range(3)]).double(), method, where="convs.*")
    for own, conv in zip(ours.convs, theirs.convs):
        own.after[0].linear.weight.data = conv.weight1.data.T.clone()
    torch.testing.assert_close(ours(X, EDGES), theirs(X, EDGES), **CLOSE)
    ours(X, EDGES).square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in ours.parameters())


@torch.no_grad()
def test_edges_are_dropped_in_training_alike_in_all_layers_with_their_weights() -> None:
    model, weights = gcn(), torch.rand(EDGES.shape[1]).double()
    osm.apply(model, "drop_edge", rate=0.5)
    assert torch.equal(model(X, EDGES, weights), gcn()(X, EDGES, weights))
    torch.manual_seed(5)
    found = model.train()(X, EDGES, edge_weight=weights)
    torch.manual_seed(5)
    kept = drop_edges(EDGES, 0.5)
    assert 0 < kept.sum() < len(kept)
    torch.manual_seed(5)
    assert torch.equal(drop_edges(EDGES.int(), 0.5), kept)
    expected = gcn()(X, EDGES[:, kept], weights[kept])
    torch.testing.assert_close(found, expected, **CLOSE)
    assert not torch.equal(found, model(X, EDGES, weights))  # drawn anew in every call


@torch.no_grad()
def test_what_one_of_two_methods_drops_is_dropped() -> None:
    kept: list[Tensor] = []
    model = osm.apply(gcn(), [partial(osm.DropEdge, rate=rate) for rate in (0.2, 0.6)]).train()
    for conv in model.convs:
        note = lambda conv, args, given: kept.append(given["edge_index"])  # noqa: E731
        conv.register_forward_pre_hook(note, with_kwargs=True)
    torch.manual_seed(5)
    model(X, EDGES, torch.ones(EDGES.shape[1]).double())
    torch.manual_seed(5)
    both = drop_edges(EDGES, 0.2), drop_edges(EDGES, 0.6)
    assert not torch.equal(*both)
    assert all(torch.equal(edges, EDGES[:, both[0] & both[1]]) for edges in kept)


class Relations(nn.Module):
    """Convolutions that need the type of every edge."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(pyg.RGCNConv(8, 8, 2) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index, edge_index[0] % 2)
        return x


@torch.no_grad()
def test_convolutions_that_need_more_than_nodes_and_edges_are_joined_too() -> None:
    torch.manual_seed(0)
    model = Relations().double()
    first = model.convs[0](X, EDGES, EDGES[0] % 2) + X
    second = model.convs[1](first, EDGES, EDGES[0] % 2) + first
    expected = model.convs[2](second, EDGES, EDGES[0] % 2)
    torch.testing.assert_close(osm.apply(model, "residual")(X, EDGES), expected, **CLOSE)


def test_layers_are_numbered_among_those_with_the_skip_connection() -> None:
    """The first convolution changes the number of channels and has a LayerNorm alone."""
    for method in ("initial_residual", ["layernorm", "initial_residual"]):
        model = osm.apply(gcn(), method)
        sites = [conv.after for conv in model.convs if hasattr(conv, "after")]
        assert [site.context.layer for site in sites if site.reads_inputs] == [1, 2, 3]


@torch.no_grad()
def test_a_batch_of_graphs_has_its_own_inputs_in_every_graph() -> None:
    """Where a method that mixes the nodes follows at the same place."""
    torch.manual_seed(0)
    model = osm.apply(pyg.GCN(4, 4, 4).double().eval(), ["initial_residual", "pairnorm"])
    graphs = [graph(n, seed) for seed, n in enumerate((5, 8, 5))]
    batch = Batch.from_data_list(graphs)
    alone = torch.cat(
        [model(g.x, g.edge_index, batch=torch.zeros(len(g.x)).long()) for g in graphs]
    )
    torch.testing.assert_close(model(batch.x, batch.edge_index, batch=batch.batch), alone, **CLOSE)


def test_a_repeated_layer_is_refused_since_it_does_not_see_the_others() -> None:
    class Repeating(Stack):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            for conv in self.convs:
                x = checkpoint(conv, x, edge_index, use_reentrant=False)
            return x

    for method in ("initial_residual", "drop_edge"):
        model = osm.apply(Repeating([pyg.GCNConv(8, 8) for _ in range(3)]).double(), method)
        with pytest.raises(osm.InputError, match="^model: gradient checkpointing"):
            model(X, EDGES).sum().backward()


@pytest.mark.parametrize("name", ["vit", "bert", "gpt2", "llama"])
@torch.no_grad()
def test_branches_of_scale_0_leave_the_identity_and_of_scale_1_the_model(name: str) -> None:
    case = CASES[name]
    model, seen = case.model(), []
    plain = case.run(model)
    osm.apply(model, "rezero", start=1.0)
    assert torch.equal(case.run(model), plain)
    osm.apply(osm.remove(model), osm.ReZero)
    alphas = [p for n, p in model.named_parameters() if n.endswith(".alpha")]
    assert [p.tolist() for p in alphas] == [[0.0]] * 4  # two branches in two blocks
    blocks = [m for n, m in model.named_modules() if n.endswith((".0", ".1")) and hasattr(m, "mlp")]
    for block in blocks:
        block.register_forward_hook(lambda m, args, out: seen.append((args[0], out)))
    case.run(model)
    for given, out in seen:
        assert torch.equal(given, out[0] if isinstance(out, tuple) else out)
    assert len(seen) == (0 if name == "bert" else 2)  # BERT has norms after the sums


@pytest.mark.parametrize("method", ["residual", "initial_residual", "jumping"])
def test_a_model_without_storage_has_the_same_places(method: str) -> None:
    with torch.device("meta"):
        model = osm.apply(pyg.GCN(8, 16, 5, 3), method)
    assert all(parameter.is_meta for parameter in model.parameters())
    own = osm.apply(pyg.GCN(8, 16, 5, 3), method)
    assert [*dict(model.named_modules())] == [*dict(own.named_modules())]


@torch.no_grad()
def test_a_branch_without_a_residual_sum_gets_one() -> None:
    stack = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))).double()
    x = expected = X[None]
    for layer in stack:
        expected = 0.5 * (expected + 0.25 * layer(expected))
    first, last = (partial(osm.ReZero, start=start) for start in (0.25, 0.5))
    osm.apply(stack, [first, osm.Residual, last], where="[012]")  # one method twice
    torch.testing.assert_close(stack(x), expected, **CLOSE)


REFUSED = {
    "blocks add their input": (vit, "residual", {}, "aggregator"),
    "words": (bert, "initial_residual", {}, "aggregator"),
    "no edges": (vit, "drop_edge", {}, "aggregator"),
    "no messages": (vit, "drop_message", {}, "aggregator"),
    "no nodes": (bert, "drop_node", {}, "aggregator"),
    "no graph": (gpt2, "half_hop", {}, "aggregator"),
    "a part of the graph": (gcn, "half_hop", {"blocks": [0]}, "blocks"),
    "no attention": (gcn, "gated_attention", {}, "aggregator"),
    "no maps": (gcn, "re_attention", {}, "aggregator"),
    "later words": (gpt2, "re_attention", {}, "aggregator"),
    "scaled already": (partial(vit, init_values=1e-4), "rezero", {}, "blocks"),
    "no branch": (gpt2, "rezero", {"where": "norms"}, "where"),
    "no residual sum": (gcn, "rezero", {}, "aggregator"),
    "other channels": (
        lambda: nn.ModuleList([pyg.GCNConv(4, 8), pyg.GCNConv(8, 4)]), "residual", {}, "blocks"),
    "several layers": (
        lambda: nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 8)),
        "residual", {"where": "0"}, "where"),
    "share": (gcn, "initial_residual", {"alpha": 2}, "aggregator.alpha"),
    "λ": (gcn, "initial_residual", {"lam": -1}, "aggregator.lam"),
    "interval": (gcn, "residual", {"interval": 0}, "aggregator.interval"),
    "mode": (gcn, "jumping", {"mode": "sum"}, "aggregator.mode"),
    "rate": (gcn, "drop_edge", {"rate": 1.0}, "aggregator.rate"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_meaning_is_refused(why: str) -> None:
    build, method, options, key = REFUSED[why]
    model = build()
    before = everything(model)
    with pytest.raises(osm.InputError, match=f"^{key}\\b"):
        osm.apply(model, method, **options)
    assert everything(model) == before


def test_edges_that_cannot_be_dropped_are_refused() -> None:
    adjacency = torch.eye(6).double().to_sparse_coo()
    for method in ("drop_edge", "drop_message", "half_hop"):
        for options, edges in (({}, adjacency), ({"cached": True}, EDGES)):
            model = osm.apply(gcn(**options), method).train()
            with pytest.raises(osm.InputError, match="^model: "):
                model(X, edges)


@pytest.mark.parametrize("widths", [(8, 16, 4), (8, 1, 16)])  # the second would broadcast
def test_outputs_of_another_width_are_not_added(widths: tuple[int, ...]) -> None:
    model = nn.Sequential(*map(nn.Linear, widths, widths[1:]))
    osm.apply(model, "residual", where="[01]")
    with pytest.raises(osm.InputError, match="^aggregator: "):
        model(torch.randn(2, 5, 8))
