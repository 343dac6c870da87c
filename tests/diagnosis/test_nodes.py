"""Laws of graphs: batches, edges of any form and their weights, nodes without neighbours."""

from typing import Any

import pytest
import torch
import torch_geometric.data as pyg_data
from diagnosed import CYCLE, Blocks, captured, draw, equal, gcn
from torch import Tensor, nn
from torch_geometric.transforms import ToSparseTensor

import oversmoothing as osm
from oversmoothing.diagnosis.samples import Graphs
from oversmoothing.metrics import graphs, smoothness

X, NODES = draw(2, 5, 8), draw(6, 4)


def test_a_batch_of_graphs_equals_graph_by_graph() -> None:
    graphs = [
        pyg_data.Data(x=draw(6, 4, seed=1), edge_index=CYCLE),
        pyg_data.Data(x=draw(3, 4, seed=2), edge_index=CYCLE[:, :6]),
    ]
    model, batch = gcn(), pyg_data.Batch.from_data_list(graphs)
    expected = osm.diagnose(model, batches=graphs)
    assert "mad" in expected.values and "1 node without neighbours" in expected.notes[0]
    equal(expected, osm.diagnose(model, batch))
    equal(expected, osm.diagnose(model, batch.x, batch.edge_index, batch=batch.batch))
    order = torch.tensor([8, 0, 3, 6, 1, 2, 7, 4, 5])  # a batch vector need not be sorted
    edges = order.argsort()[batch.edge_index]
    equal(expected, osm.diagnose(model, batch.x[order], edges, batch=batch.batch[order]))
    found = osm.diagnose(OfBatch(model), batch)
    assert list(found.values.values()) == list(osm.diagnose(model, batch).values.values())


class OfBatch(nn.Module):
    """Takes a whole Batch, whose parameter has the name of one of its fields."""

    def __init__(self, gnn: nn.Module) -> None:
        super().__init__()
        self.gnn = gnn

    def forward(self, batch: pyg_data.Batch) -> Tensor:
        return self.gnn(batch.x, batch.edge_index)


class WithMatrix(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return self.inner(x, adj_t)


def test_edges_as_a_matrix_and_several_features_of_one_graph() -> None:
    model, x = gcn(), draw(2, 6, 4)
    matrix = torch.sparse_coo_tensor(CYCLE.flip(0), torch.ones(CYCLE.shape[1]), (6, 6))
    equal(osm.diagnose(model, NODES, matrix), osm.diagnose(model, NODES, CYCLE))
    data = pyg_data.Data(x=NODES, edge_index=CYCLE)
    adjacent = WithMatrix(model)  # the argument that torch-geometric's ToSparseTensor makes
    found = osm.diagnose(adjacent, ToSparseTensor(layout=torch.sparse_csr)(data.clone()))
    assert found["mad"] == pytest.approx(osm.diagnose(model, NODES, CYCLE)["mad"])
    alone = osm.diagnose(model, batches=[(features, CYCLE) for features in x])
    equal(alone, osm.diagnose(model, x, CYCLE))


def test_weights_of_edges_count() -> None:
    model, x, weight = gcn(), NODES[:5], torch.rand(CYCLE.shape[1])
    report = osm.diagnose(model, x, CYCLE, edge_weight=weight)
    hidden = [h for h in captured(model, report.layers, x, CYCLE, edge_weight=weight)]
    for name in ("dirichlet_energy", "mad", "rayleigh_quotient", "rayleigh_quotient_loops"):
        measure = getattr(osm.metrics, name)
        expected = [measure(h, CYCLE, weight).item() for h in hidden]
        assert report[name] == pytest.approx(expected)
        assert expected != pytest.approx([measure(h, CYCLE).item() for h in hidden])
    matrix = torch.sparse_coo_tensor(CYCLE.flip(0), weight, (5, 5))
    equal(osm.diagnose(model, x, matrix), osm.diagnose(model, x, CYCLE, edge_weight=weight))
    for own in (CYCLE.clone(), matrix):  # edges= beside the arguments of the model
        equal(report, osm.diagnose(model, x, CYCLE, edge_weight=weight, edges=own))


def test_weights_of_other_edges_do_not_count_and_are_noted() -> None:
    """Also if there are as many edges; a weight by hand: one edge of 0.5 between two nodes."""
    model, x, weight = gcn(), NODES[:5], torch.rand(CYCLE.shape[1])
    for other in (CYCLE[:, :4], CYCLE.flip(1)):
        report = osm.diagnose(model, x, CYCLE, edge_weight=weight, edges=other)
        hidden = captured(model, report.layers, x, CYCLE, edge_weight=weight)
        expected = [graphs.dirichlet_energy(h, other).item() for h in hidden]
        assert report["dirichlet_energy"] == pytest.approx(expected)
        assert any("edge_weight" in note for note in report.notes)
    pair, half = torch.tensor([[0, 1], [1, 0]]), torch.full((2,), 0.5)
    report = osm.diagnose(model, NODES[:2], pair, edge_weight=half, edges=pair)
    for h, energy in zip(captured(model, report.layers, NODES[:2], pair, edge_weight=half),
                         report["dirichlet_energy"]):  # fmt: skip
        by_hand = 0.5 * (h[0] - h[1]).square().sum().item()  # (1/2) Σ over 2 edges
        assert energy == pytest.approx(by_hand, rel=1e-5)


def test_isolated_nodes_count_but_for_mad() -> None:
    model = gcn()
    report = osm.diagnose(model, NODES, CYCLE, layers="convs.0")
    hidden = model.convs[0](NODES, CYCLE)
    assert report["cosine"] == pytest.approx([smoothness.cosine(hidden).item()])
    connected = graphs.mad(hidden[:5], CYCLE).item()
    assert report["mad"] == pytest.approx([connected])
    lonely = osm.diagnose(model, pyg_data.Data(x=NODES, edge_index=CYCLE[:, :0]))
    assert lonely["mad"] == [None] * 3 and lonely["dirichlet_energy"] == [0] * 3
    assert "–" in str(lonely)


def test_clouds_of_points_are_samples_without_edges() -> None:
    class Cloud(Blocks):
        def forward(self, x: Tensor, batch: Tensor | None = None) -> Tensor:
            return super().forward(x)

    model, x, batch = Cloud(), draw(9, 8), torch.tensor([1, 0, 0, 1, 2, 2, 2, 2, 0])
    report = osm.diagnose(model, x, batch)
    assert report.samples == 3 and report.tokens == (2, 4)
    alone = osm.diagnose(model, batches=[x[batch == i] for i in range(3)], layout="NC")
    assert report["cosine"] == pytest.approx(alone["cosine"])
    tokens = osm.diagnose(model, X, torch.tensor([0, 1]))  # such as labels
    assert tokens.unit == "tokens" and tokens.tokens == (5, 5)


def test_what_makes_numbers_differ_is_noted() -> None:
    model, x = gcn(), NODES[:5]

    def notes(edges: Tensor, **options: Any) -> str:
        return " ".join(osm.diagnose(model, x, edges, **options).notes)

    half = CYCLE[:, CYCLE[0] < CYCLE[1]]
    assert not notes(torch.cat([half, half.flip(0)], 1))
    assert f"Edges: {half.shape[1]} lack their reverse and 0 are" in notes(half)
    assert f"Edges: 0 lack their reverse and {CYCLE.shape[1]} are" in notes(CYCLE.repeat(1, 2))
    pair = torch.tensor([[0, 1], [1, 0]])
    single = osm.diagnose(model, draw(3, 4), pair, batch=torch.tensor([0, 0, 1]))
    assert single.notes == ("Left out: 1 graph of one node.",)


def test_edges_of_32_bits_in_a_large_graph_are_not_taken_for_repeated() -> None:
    edges = torch.tensor([[61356, 50000, 0, 2704], [50000, 61356, 2704, 0]])
    assert Graphs(70_000, None, edges.int()).repeated == 0
