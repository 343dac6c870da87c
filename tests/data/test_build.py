"""A graph from tensors of any kind: converted, every entry once, and refused in one line."""

import pytest
import torch
from torch import Tensor

from oversmoothing.lab.backbones.sparse import Adjacency
from oversmoothing.lab.data.graph import Graph, build, to_csr

N = 6
PATH = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
Y = torch.tensor([0, 1, 0, 1, 0, 1])
MASKS = tuple(torch.tensor([i // 2 == part for i in range(N)]) for part in range(3))
X = torch.arange(1.0, 13.0).view(N, 2)


def make(**changes) -> Graph:
    given = {"x": X, "y": Y, "edge_index": PATH, "masks": MASKS, "num_nodes": N} | changes
    return build("toy", **given)


def dense(graph: Graph) -> Tensor:
    """The matrix A."""
    values = torch.ones(graph.edges.shape[1]) if graph.weights is None else graph.weights
    return torch.zeros(N, N).index_put_(tuple(graph.edges), values)


def test_undirected_edges_have_both_directions_and_directed_ones_theirs():
    A = torch.zeros(N, N).index_put_((PATH[1], PATH[0]), torch.ones(5))  # row receives from column
    assert torch.equal(dense(make()), A + A.T)
    with pytest.warns(UserWarning, match="1 node has no neighbour"):  # node 0 receives nothing
        assert torch.equal(dense(make(undirected=False)), A)


def test_doubles_and_self_loops_count_once_and_gcn_adds_its_own():
    edges = torch.cat([PATH, PATH[:, :2].flip(0), torch.tensor([[3, 3], [3, 3]])], dim=1)
    graph = make(edge_index=edges)
    assert torch.equal(dense(graph), (dense(make()) + torch.diag(torch.eye(N)[3])))
    mixed = Adjacency(graph.edges, N, "row")(torch.eye(N)[None])[0]
    assert torch.allclose(mixed[3], torch.tensor([0, 0, 1, 2, 1, 0]) / 4)


def test_weights_are_kept_and_the_larger_of_two_counts():
    edges = torch.cat([PATH, PATH[:, :1].flip(0), PATH[:, 1:2]], dim=1)
    weights = torch.tensor([1, 2, 3, 4, 5, 7, 0.5])
    A = dense(make(edge_index=edges, weights=weights[:, None].double()))
    assert torch.equal(A, A.T)
    assert A.diagonal(1).tolist() == [7, 2, 3, 4, 5]
    directed = torch.cat([edges, torch.tensor([[5], [0]])], dim=1)
    graph = make(edge_index=directed, weights=torch.ones(8) * 2, undirected=False)
    assert graph.weights.tolist() == [2.0] * 7  # one edge is listed twice


FEATURES = {
    "float64": X.double(),
    "int": X.int(),
    "sparse COO": X.to_sparse_coo(),
    "sparse CSR": to_csr(X),
}


@pytest.mark.parametrize("kind", FEATURES)
def test_features_become_float32(kind):
    x = make(x=FEATURES[kind]).x
    assert x.dtype == torch.float32 and x.layout == torch.strided
    assert torch.equal(x, X)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
def test_features_with_few_entries_are_kept_sparse(dtype):
    x = torch.zeros(N, 40).index_put_((torch.arange(N), torch.arange(N)), torch.tensor(1.0))
    kept = make(x=x.to(dtype)).x
    assert kept.layout == torch.sparse_csr and kept.dtype == torch.float32
    assert kept.values().numel() == N and torch.equal(kept.to_dense(), x)


def test_rows_are_normalised_dense_and_sparse():
    for x in (X, torch.eye(N, 70) * torch.tensor([[0], [2], [1], [1], [1], [1]])):  # an empty row
        rows = make(x=x, row_normalize=True).x.to_dense()
        torch.testing.assert_close(rows, x / (x.sum(dim=1, keepdim=True) + 1e-6))


def test_nodes_without_label_may_be_outside_the_masks():
    masks = tuple(mask & (torch.arange(N) != 5) for mask in MASKS)
    for none in (-1, -100, float("nan")):
        y = torch.tensor([0, 1, 0, 1, 0, none])
        assert make(y=y, masks=masks).y.tolist() == [0, 1, 0, 1, 0, -1]
        assert make(y=y[:, None], masks=masks).num_classes == 2


def test_a_class_without_training_node_is_told():
    with pytest.warns(UserWarning, match="toy: class 2 has no training node"):
        make(y=torch.tensor([0, 1, 0, 1, 2, 1]))


def test_the_checksum_is_that_of_features_labels_and_edges():
    same, other = make(x=X.double()), make(x=X + 1)
    assert make().checksum == same.checksum != other.checksum
    assert make(weights=torch.ones(5) * 2).checksum != make().checksum


def test_isolated_nodes_are_counted_not_refused():
    edges = torch.tensor([[0, 1, 5], [1, 0, 5]])  # a self-loop is not a neighbour
    with pytest.warns(UserWarning, match="toy: 4 nodes have no neighbour"):
        make(edge_index=edges)


def test_to_moves_every_tensor():
    tensors = [value for value in vars(make().to("meta")).values() if torch.is_tensor(value)]
    assert len(tensors) == 6
    assert {tensor.device.type for tensor in tensors} == {"meta"}
