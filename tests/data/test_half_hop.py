"""Half-Hop's graph in the lab; the transform itself is tested with the library."""

from dataclasses import replace

import pytest
import torch

from oversmoothing.lab.backbones.sparse import Adjacency
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.data.graph import to_csr
from oversmoothing.lab.data.half_hop import upsampled


@pytest.mark.parametrize("sparse", [True, False])
def test_a_node_hears_of_its_neighbours_through_slow_nodes(sparse: bool) -> None:
    graph = generate(
        num_nodes=30, num_classes=3, degree=4.0, features=5, train_per_class=3, num_val=5
    )
    N, E = graph.num_nodes, graph.edges.shape[1]
    weights = torch.rand(E)
    x = graph.x.to_dense()
    given = replace(graph, x=to_csr(x) if sparse else x, weights=weights)
    found = upsampled(given, alpha=0.25)
    assert found.num_nodes == N + E and found.x.is_sparse_csr == sparse
    rows, columns = graph.edges
    slow = 0.25 * x[columns] + 0.75 * x[rows]
    assert torch.equal(found.x.to_dense(), torch.cat([x, slow]))
    # row i of A holds what node i hears of: its slow nodes; they hear of both ends of their edge
    dense = torch.zeros(N + E, N + E).index_put(tuple(found.edges), found.weights)
    expected, number = torch.zeros_like(dense), N + torch.arange(E)
    for ends in ((rows, number), (number, rows), (number, columns)):
        expected[ends] = weights
    assert torch.equal(dense, expected)
    assert (found.y[N:] == -1).all() and torch.equal(found.y[:N], graph.y)
    for part in ("train", "val", "test"):
        own = getattr(found, part)
        assert torch.equal(own[:N], getattr(graph, part)) and not own[N:].any()


def test_directed_edges_are_mixed_in_both_passes() -> None:
    """The graph with slow nodes is directed, also for the gradient."""
    graph = upsampled(generate(num_nodes=20, num_classes=2, train_per_class=3, num_val=4))
    mix = Adjacency(graph.edges, graph.num_nodes, "row")
    eye = torch.eye(graph.num_nodes)[None].requires_grad_()
    dense = torch.zeros(graph.num_nodes, graph.num_nodes).index_put(
        tuple(graph.edges), torch.ones(())
    )
    dense += torch.eye(graph.num_nodes)
    dense /= dense.sum(dim=1, keepdim=True)
    factor = torch.rand(graph.num_nodes, graph.num_nodes)
    (factor * mix(eye)[0]).sum().backward()
    torch.testing.assert_close(mix(eye)[0], dense)
    torch.testing.assert_close(eye.grad[0], dense.T @ factor)
