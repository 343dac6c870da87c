"""Networks of nodes of several types have a row for each layer and type."""

from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, fx, nn
from torch_geometric.data import Batch, HeteroData

import oversmoothing as osm
from oversmoothing.diagnosis.calls import Call
from oversmoothing.diagnosis.hetero import nodes_of

KINDS = [("a", "to", "b"), ("b", "to", "a"), ("b", "self", "b")]
EDGES = {kind: torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]) for kind in KINDS}
NODES = {"a": torch.randn(6, 8), "b": torch.randn(5, 8)}


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = (
            pyg.HeteroConv({kind: pyg.SAGEConv((8, 8), 8) for kind in KINDS}) for _ in "12"
        )

    def forward(self, x_dict: dict, edge_index_dict: dict) -> dict[str, Tensor]:
        return self.second(self.first(x_dict, edge_index_dict), edge_index_dict)


def graph() -> HeteroData:
    data = HeteroData()
    for kind, x in NODES.items():
        data[kind].x = x
    for kind, edges in EDGES.items():
        data[kind].edge_index = edges
    return data


def expected(x: Tensor, kind: str) -> dict[str, float]:
    found = {"effective_rank": osm.metrics.effective_rank(x), "cosine": osm.metrics.cosine(x)}
    if kind == "b":  # the only type with edges among its nodes
        found["dirichlet_energy"] = osm.metrics.dirichlet_energy(x, EDGES[KINDS[2]])
    return {name: value.item() for name, value in found.items()}


def check(report: osm.Report, states: dict[str, Tensor]) -> None:
    assert {*report.layers} == {*states}
    for i, layer in enumerate(report.layers):
        kind = layer[-2]
        for metric, value in expected(states[layer], kind).items():
            assert report[metric][i] == pytest.approx(value, rel=1e-6), (layer, metric)
        assert kind == "b" or report["mad"][i] is None


def test_a_row_for_each_layer_and_type_of_nodes() -> None:
    model = Stack().eval()
    report = osm.diagnose(model, NODES, EDGES)
    with torch.no_grad():
        one = model.first(NODES, EDGES)
        two = model.second(one, EDGES)
    states = {f"{name}[{kind}]": x for name, of in (("first", one), ("second", two))
              for kind, x in of.items()}  # fmt: skip
    check(report, states)
    assert report.samples == 1 and report.tokens == (11, 11) and report.unit == "nodes"
    assert osm.diagnose(model, graph()).values == report.values
    assert report.by_kind()["a"].layers == ("first[a]", "second[a]")
    assert report.summary().startswith("b: The effective rank")
    two = osm.diagnose(model, Batch.from_data_list([graph(), graph()]))
    assert two.samples == 2 and two.tokens == (11, 11)
    assert two["cosine"] == pytest.approx(report["cosine"], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
def test_the_sums_that_to_hetero_makes_outside_of_modules(aggr: str) -> None:
    torch.manual_seed(0)
    model = pyg.to_hetero(pyg.GraphSAGE(8, 8, 2), (["a", "b"], KINDS), aggr=aggr).eval()
    seen: dict[str, Any] = {}

    class See(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            seen[node.name] = super().run_node(node)
            return seen[node.name]

    with torch.no_grad():
        See(model).run(NODES, EDGES, None, None, None, None, None, None)
    states = {f"convs.{i}[{kind}]": seen[f"convs_{i}__{kind}"] for i in (0, 1) for kind in "ab"}
    check(osm.diagnose(model, NODES, EDGES), states)
    wrapped = nn.Sequential(model)
    wrapped.forward = lambda x_dict, edge_index_dict: model(x_dict, edge_index_dict)
    assert osm.diagnose(wrapped, graph()).layers[0].startswith("0.convs.0[")


def test_a_traced_layer_that_is_called_several_times() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv((8, 8), 8)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            for _ in range(3):
                x = self.conv(x, edge_index).relu()
            return x

    model = pyg.to_hetero(Shared(), (["a", "b"], KINDS)).eval()
    x, states = NODES, {}
    with torch.no_grad():
        for i in (1, 2, 3):
            parts = [model.conv["__".join(k)]((x[k[0]], x[k[2]]), EDGES[k]) for k in KINDS]
            x = {"a": parts[1], "b": parts[0] + parts[2]}
            states |= {f"conv[{kind}]#{i}": nodes for kind, nodes in x.items()}
            x = {kind: nodes.relu() for kind, nodes in x.items()}
    report = osm.diagnose(model, NODES, EDGES, layers="conv")
    assert {*report.layers} == {*states}
    for i, layer in enumerate(report.layers):
        expected = osm.metrics.effective_rank(states[layer]).item()
        assert report["effective_rank"][i] == pytest.approx(expected, rel=1e-6), layer


def test_dictionaries_of_a_batch_of_graphs_with_their_batch_vectors() -> None:
    """By type, in any order; they give what the graphs give one by one."""
    graphs = [graph(), graph()]
    for data in graphs:
        for kind in "ab":
            data[kind].x = torch.randn(data[kind].x.shape)
    model, data = Stack(), Batch.from_data_list(graphs)
    alone = osm.diagnose(model, batches=graphs)
    order = {kind: torch.randperm(len(data[kind].x)) for kind in "ab"}
    x, batch = ({k: of[k][order[k]] for k in "ab"} for of in (data.x_dict, data.batch_dict))
    places = {kind: own.argsort() for kind, own in order.items()}
    edges = {
        kind: torch.stack([places[kind[0]][own[0]], places[kind[2]][own[1]]])
        for kind, own in data.edge_index_dict.items()
    }
    found = osm.diagnose(model, x, edges, batch=batch)
    assert found.samples == 2 and found.tokens == alone.tokens
    for metric in ("cosine", "effective_rank", "dirichlet_energy"):
        for one, other in zip(found[metric], alone[metric]):
            assert one == (other and pytest.approx(other, rel=1e-5, abs=1e-6)), metric
    for wrong in ({"a": batch["a"]}, {"a": batch["a"], "b": batch["b"][:3]}):
        with pytest.raises(osm.InputError, match="^batch: "):
            osm.diagnose(model, x, edges, batch=wrong)
    conv = (pyg.GCNConv(8, 8), "x, edge_index -> x")
    for inputs in ("x, edge_index", "x, edge_index, batch"):
        with pytest.raises(osm.InputError, match="^batch: "):
            osm.diagnose(pyg.Sequential(inputs, [conv]), NODES["a"], EDGES[KINDS[0]],
                         layers="module_0", batch={"a": batch["a"]})  # fmt: skip


def test_types_without_nodes_weights_and_labels_by_type() -> None:
    class Weighted(Stack):
        def forward(self, x_dict: dict, edge_index_dict: dict, edge_weight_dict: dict) -> dict:
            return super().forward(x_dict, edge_index_dict)

    model, weights = Weighted(), {kind: torch.rand(4) for kind in KINDS}
    labels = torch.tensor([0, 1, 0, 1, -1])
    report = osm.diagnose(model, NODES, EDGES, weights, labels={"b": labels})
    x, row = model.first(NODES, EDGES)["b"], report.layers.index("first[b]")
    energy = osm.metrics.dirichlet_energy(x, EDGES[KINDS[2]], weights[KINDS[2]])
    assert report["dirichlet_energy"][row] == pytest.approx(energy.item(), rel=1e-6)
    ratio = osm.metrics.group_distance_ratio(x, labels)
    assert report["group_distance_ratio"][row] == pytest.approx(ratio.item(), rel=1e-6)
    assert report["group_distance_ratio"][report.layers.index("first[a]")] is None
    none = {"a": NODES["a"], "b": torch.empty(0, 8)}, dict.fromkeys(KINDS, torch.empty(2, 0).long())
    both = osm.diagnose(Stack(), batches=[none, (NODES, EDGES), none])
    alone, first = osm.diagnose(Stack(), NODES, EDGES), both.layers.index("first[b]")
    assert both["cosine"][first] == alone["cosine"][0] and both.counts["cosine"][first] == 1
    assert both.samples == 3 and both.tokens == (6, 11)
    [note] = osm.diagnose(Stack(), *none).notes
    assert note == "Not measured: first[b], second[b], without nodes of this type."
    both = [("b", "self", "b"), ("b", "other", "b")]
    pair = {both[0]: torch.tensor([[0, 1], [1, 0]]), both[1]: torch.tensor([[1, 2], [2, 1]])}
    call = Call(named={"edge_weight_dict": {both[0]: torch.tensor([3.0, 3.0])}})
    assert nodes_of("b", pair, call)[2].tolist() == [3, 3, 1, 1]  # 1 where a type has no weights
    for options in ({"labels": labels}, {"edges": EDGES[KINDS[0]]}, {"batch": labels}):
        with pytest.raises(osm.InputError, match=f"^{next(iter(options))}: "):
            osm.diagnose(Stack(), NODES, EDGES, **options)
