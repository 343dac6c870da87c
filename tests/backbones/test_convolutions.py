"""Networks of torch-geometric's convolutions: laws, dropped edges, several seeds."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from small_pyg import CLASSES, CONVS, N, graph, networks
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.aggregators.base import PLAIN, Context, Inside
from oversmoothing.aggregators.batchnorm import BatchNorm
from oversmoothing.aggregators.drop_edge import drop_edges
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.pyg import Layer, Networks
from oversmoothing.lab.backbones.pyg_convs import as_csr
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes import FullBatchAdam, FullBatchLoop

CLOSE = {"rtol": 0, "atol": 1e-10}


every_conv = pytest.mark.parametrize("conv", CONVS)


@every_conv
def test_laws_of_every_convolution(conv: str) -> None:
    """Shapes, gradients of all parameters, γ = 0 equals no aggregator, and node equivariance.

    Some convolutions mix their input, of F channels in the first layer; others their output: a
    factor for each channel needs their number.
    """
    x, edges = graph()
    aggregators = [partial(osm.Centered, gamma=0.0), Scaled] if offers_inside(conv) else []
    model, plain = (networks(conv, stack, (0, 5)).eval() for stack in (aggregators, []))
    assert torch.equal(model(), plain())
    out = model()
    assert out.shape == (2, N, CLASSES)
    out.logsumexp(dim=-1).square().sum().backward()
    unused = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert not unused
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    net, renamed = model.nets[1], order.argsort()[model.edge_index]
    torch.testing.assert_close(net(x[order], renamed), out[1][order], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("conv", ["GINConv", "GraphConv", "SAGEConv"])
def test_raw_features_are_mixed_by_one_product(conv: str, double: None) -> None:
    """Without a message for each edge; the result is that of messages."""
    x, edges = graph()
    layer = networks(conv, [partial(osm.Centered, row_sum=True)]).nets[0].layers[0]
    weights = {"edge_weight": torch.rand(edges.shape[1])} if conv == "GraphConv" else {}
    expected = layer.conv(x, edges.flip(0), **weights)
    order = torch.randperm(edges.shape[1])
    mixed = {key: value[order] for key, value in weights.items()}
    matrix = as_csr(edges.flip(0)[:, order], mixed.get("edge_weight"), x)
    torch.testing.assert_close(layer.conv(x, matrix), expected, **CLOSE)
    shapes: list[torch.layout] = []
    model = networks(conv)
    for own in model.nets[0].layers:
        own.conv.register_propagate_forward_pre_hook(lambda *a: shapes.append(a[1][0].layout))
    model()
    assert shapes == [torch.sparse_csr, torch.strided, torch.strided]


def test_a_class_prepared_for_other_options_takes_messages(
    double: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch-geometric prepares a class once; with several aggregations it takes no matrix."""
    expected, forward = networks("SAGEConv").eval()(), Layer.forward

    def unprepared(layer: Layer, h: Tensor, edges: dict[str, Tensor], *rest: Any) -> Tensor:
        if edges["edge_index"].layout != torch.strided:
            raise NotImplementedError
        return forward(layer, h, edges, *rest)

    monkeypatch.setattr(Layer, "forward", unprepared)
    torch.testing.assert_close(networks("SAGEConv").eval()(), expected)


@pytest.mark.parametrize(
    ("conv", "stays"), [("GCNConv", True), ("GATConv", True), ("SAGEConv", False), ("APPNP", False)]
)
def test_sparse_features_give_what_dense_ones_do(conv: str, stays: bool, double: None) -> None:
    """They stay sparse where the network starts with a product, which APPNP's linear layer is."""
    x, edges = graph()
    options = {"conv": conv, "options": CONVS[conv], "hidden": 8, "dropout": 0.0}
    found = []
    for features in (x, x.to_sparse_csr()):
        model = Networks([osm.Centered], features, edges, CLASSES, [0], **options)
        model().logsumexp(dim=-1).square().sum().backward()
        found.append([model(), *(p.grad for p in model.parameters())])
    assert model.nets[0].layers[0].takes_sparse == stays
    for dense, sparse in zip(*found, strict=True):
        torch.testing.assert_close(sparse, dense, **CLOSE)


def offers_inside(conv: str) -> bool:
    try:
        networks(conv, [osm.Centered])
    except InputError as refused:
        assert conv in str(refused) and "acts after the convolution" in str(refused)
        return False
    return True


class Scaled(Inside):
    """Scales the mixed tokens by a parameter for each channel."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(dim))

    def forward(self, mixed: Tensor, v: Tensor, context: Context) -> Tensor:
        return mixed * self.factor


@pytest.mark.parametrize("skip", ["none", "residual", "initial"])
@pytest.mark.parametrize("jumping", ["none", "cat", "max", "lstm"])
@pytest.mark.parametrize("conv", ["GATConv", "APPNP"])
def test_skips_and_jumps_train_every_parameter(conv: str, skip: str, jumping: str) -> None:
    model = networks(conv, [osm.Centered, osm.LayerNorm], skip=skip, jumping=jumping, dropout=0.1)
    hidden: list[Tensor] = []
    model(hidden).logsumexp(dim=-1).square().sum().backward()
    for name, p in model.named_parameters():
        inside_softmax = name.endswith("jumping.att.bias")  # its gradient is 0 but for rounding
        assert p.grad is not None and (inside_softmax or p.grad.abs().sum()), name
    assert len(hidden) == 3 and hidden[0].shape == (1, N, 8)
    plain = networks(conv, skip="none", jumping=jumping, dropout=0.1)
    if skip != "none":
        assert not torch.equal(plain.eval()(), networks(conv, skip=skip, jumping=jumping).eval()())


@pytest.mark.parametrize("conv", ["GATConv", "APPNP"])
def test_a_residual_branch_may_begin_at_zero(conv: str) -> None:
    """Then all hidden layers are the first; with factors of 1 it is the plain residual sum."""
    options = {"skip": "residual", "depth": 4}
    model, plain = networks(conv, branch="rezero", **options), networks(conv, **options)
    hidden: list[Tensor] = []
    model.eval()(hidden)
    assert all(torch.equal(h, hidden[0]) for h in hidden[:-1])
    for layer in model.nets[0].layers:
        layer.branch.alpha.data.fill_(1)
    assert torch.equal(model(), plain.eval()())


@every_conv
def test_initial_weights_are_those_that_are_asked_for(conv: str) -> None:
    """All products, not vectors of attention or aggregators; the singular values are σ = 2."""
    aggregators = [Scaled] if offers_inside(conv) else []
    net = networks(conv, aggregators, init="orthogonal", variance=4.0).nets[0]
    own = networks(conv, aggregators).nets[0].state_dict()
    for name, value in net.named_parameters():
        if "att" in name or "inside" in name:
            assert torch.equal(value, own[name]), name
        elif name.endswith((".lin.bias", ".conv.bias")):
            assert not value.any(), name
        elif value.dim() > 1:
            sigma = torch.linalg.svdvals(value.detach())
            torch.testing.assert_close(sigma, torch.full_like(sigma, 2.0), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("conv", "kind"), [("SAGEConv", "drop_node"), ("GCNConv", "drop_message")])
def test_dropped_nodes_and_messages_leave_the_mean_of_a_layer(conv: str, kind: str) -> None:
    x, edges = graph()
    options = {"conv": conv, "depth": 1, "dropout": 0.0, kind: 0.5}
    model = Networks([], x.to_sparse_csr(), edges, CLASSES, [0], **options)
    draws = torch.stack([model()[0].detach() for _ in range(200)])
    error = draws.std(dim=0) / len(draws) ** 0.5
    assert ((draws.mean(dim=0) - model.eval()()[0]).abs() <= 5 * error).all() and error.any()


@pytest.mark.parametrize("conv", ["GCNConv", "APPNP"])  # APPNP has a linear layer first
def test_input_features_may_keep_their_entries(conv: str) -> None:
    model, seen = networks(conv, depth=1, dropout=0.5, drop_input=False), []
    net = model.nets[0]
    first = net.dense["first"] if conv == "APPNP" else net.layers[0].conv
    first.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model.train()()
    assert torch.equal(seen[0], graph()[0])


@pytest.mark.parametrize("share", [True, False])
def test_hidden_layers_share_aggregators(share: bool) -> None:
    model = networks(aggregators=[osm.LayerNorm], depth=4, share_aggregators=share)
    norms = {id(module) for module in model.modules() if isinstance(module, nn.LayerNorm)}
    assert len(norms) == (1 if share else 3)
    model = networks(aggregators=[BatchNorm], depth=4, share_aggregators=share)
    assert sum(isinstance(module, nn.BatchNorm1d) for module in model.modules()) == 3  # averages


def test_layers_do_not_share_an_aggregator_inside_that_has_moving_averages() -> None:
    class Averaging(Inside):
        can_be_shared = False

        def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
            return mixed

    layers = networks(aggregators=[Averaging, osm.Centered], depth=4).nets[0].layers
    own, shared = zip(*(layer.conv.inside for layer in layers[:3]))
    assert len(set(own)) == 3 and len(set(shared)) == 1


def test_both_directions_of_an_edge_are_dropped_together() -> None:
    _, edges = graph()
    torch.manual_seed(0)
    draws = torch.stack([drop_edges(edges, 0.3) for _ in range(2000)])
    matrix = torch.zeros(2000, N, N, dtype=torch.bool)
    matrix[:, edges[0], edges[1]] = draws
    assert torch.equal(matrix, matrix.mT)
    loops = edges[0] == edges[1]
    assert draws[:, loops].all()
    rates = draws[:, ~loops].double().mean(dim=0)
    assert (rates - 0.7).abs().max() < 5 * (0.3 * 0.7 / 2000) ** 0.5
    upper = draws[:, edges[0] < edges[1]].double()
    correlation = torch.corrcoef(upper.T).fill_diagonal_(0)
    assert correlation.abs().max() < 6 / 2000**0.5  # edges do not depend on each other


def test_edges_are_dropped_in_training_only_and_for_all_layers_alike() -> None:
    model = networks("SimpleConv", drop_edge=0.5, dropout=0.0, depth=2)
    seen: list[Tensor] = []
    for layer in model.nets[0].layers:
        layer.conv.register_forward_pre_hook(
            lambda module, args, kwargs: seen.append(kwargs["edge_index"]), with_kwargs=True
        )
    model.train()(), model(), model.eval()()
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])
    assert seen[0].shape[1] < model.edge_index.shape[1] == seen[4].shape[1]


def test_a_layer_of_several_seeds_is_that_of_each(tmp_path: Path) -> None:
    """GAT with dropout inside, and dropped edges: seeds are independent, and resume is exact."""
    data = generate(num_nodes=60, num_classes=3, features=8, train_per_class=4, num_val=9)
    options = {"conv": "GATConv", "options": {"heads": 2, "dropout": 0.4}, "drop_edge": 0.3}

    def trained(folder: str, seeds: list[int], epochs: int, blank: bool = False) -> dict:
        model = Networks([osm.Centered, osm.LayerNorm], data.x, data.edges, 3, seeds, **options)
        if blank:
            torch.nn.utils.vector_to_parameters(torch.zeros(10**5), model.parameters())
        recipe = FullBatchAdam(epochs=epochs, eval_every=3)
        recorder = Recorder(tmp_path / folder, seeds, checkpoint_seconds=0.0)
        torch.rand(epochs)  # what else draws does not matter
        FullBatchLoop(model, data, recipe, recorder, layer_metrics=True).fit()
        return model.nets[-1].state_dict()

    whole = trained("whole", [3, 1], 9)
    trained("halves", [3, 1], 4)
    resumed = trained("halves", [3, 1], 9, blank=True)  # all of its state is loaded
    for again in (resumed, trained("alone", [1], 9)):
        assert whole.keys() == again.keys()
        assert all(torch.equal(whole[key], again[key]) for key in whole)


def test_building_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    model = networks("GATConv", seeds=(0, 1), dropout=0.5)
    model.train()()
    assert torch.equal(torch.rand(3), expected)


def test_diagnosis_sees_the_layers() -> None:
    x, edges = graph()
    report = osm.diagnose(networks("GATConv", depth=4).nets[0], x, edges.flip(0))
    assert [*report.layers] == [f"layers.{i}" for i in range(4)]


@pytest.mark.parametrize("conv", ["GCNConv", "SAGEConv"])
def test_a_network_compiles_as_one_graph(conv: str) -> None:
    """For graphs of any size, unless the convolution itself looks for self-loops."""
    x, edges = graph()
    adjacency = "symmetric" if conv == "GCNConv" else "conv"
    model = networks(conv, [osm.Centered, osm.PairNorm], depth=2, adjacency=adjacency)
    net, part = model.nets[0].eval(), edges[:, (edges < 20).all(dim=0)].flip(0)
    expected = net(x, edges.flip(0)), net(x[:20], part)
    compiled = torch.compile(net, backend="aot_eager", dynamic=True, fullgraph=True)
    torch.testing.assert_close(compiled(x, edges.flip(0)), expected[0])
    torch.testing.assert_close(compiled(x[:20], part), expected[1])


def test_without_torch_geometric_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    with pytest.raises(InputError, match="pyg needs torch-geometric .*pip install torch-geo"):
        networks()
