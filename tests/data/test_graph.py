"""Checks of graphs, and their helper functions."""

import dataclasses
import warnings

import pytest
import torch

from oversmoothing.errors import InputError
from oversmoothing.lab.data.graph import (
    Graph,
    check_graph,
    row_normalised,
    symmetrised,
    to_csr,
)


def make(**changes) -> Graph:
    """Six nodes of two classes on a path."""
    mask = torch.zeros(6, dtype=torch.bool)
    graph = Graph(
        name="toy",
        x=to_csr(torch.eye(6)),
        y=torch.tensor([0, 1, 0, 1, 0, 1]),
        edges=symmetrised(torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]), 6),
        num_classes=2,
        train=mask.index_fill(0, torch.tensor([0, 1]), True),
        val=mask.index_fill(0, torch.tensor([2, 3]), True),
        test=mask.index_fill(0, torch.tensor([4, 5]), True),
        checksum="0",
    )
    return dataclasses.replace(graph, **changes)


def test_a_sound_graph_passes_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph = make()
        assert check_graph(graph) is graph


NOTHING = torch.zeros(6, dtype=torch.bool)
INF = torch.full((6, 6), float("inf"))
BAD = {
    "class 1 has no training node; change data.protocol": {
        "train": NOTHING.index_fill(0, torch.tensor([0]), True)
    },
    "class 2 has no training node": {"num_classes": 3},
    "no test node": {"test": NOTHING},
    "no val node": {"val": NOTHING},
    "nan or inf": {"x": to_csr(INF)},
    "2 nodes are in both the train and the test mask; .* test & ~train": {
        "test": NOTHING.index_fill(0, torch.tensor([0, 1, 5]), True)
    },
    "1 node is in both the val and the test mask": {
        "test": NOTHING.index_fill(0, torch.tensor([2, 4]), True).expand(3, 6)
    },
    r"expected y of int64, \(N,\), got torch.float32 .*; give y.long": {"y": torch.arange(6.0) % 2},
    "labels from 0 to num_classes − 1 = 1, or -1 for none, got 1 to 2": {
        "y": torch.tensor([1, 2, 1, 2, 1, 2])
    },
    r"expected x of \(6, F\), got \(5, 6\)": {"x": to_csr(torch.eye(6)[:5])},
    r"a boolean mask train of \(6,\), .* got torch.int64 \(2,\); from indices: .*index_fill": {
        "train": torch.tensor([0, 1])
    },
    "edges: expected nodes from 0 to 5, got 0 to 6": {"edges": torch.tensor([[0, 6], [6, 0]])},
    "2 nodes or more, got 1": {"y": torch.zeros(1, dtype=torch.long)},
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_graph_is_refused_in_one_line(message):
    with pytest.raises(InputError, match=message) as caught:
        check_graph(make(**BAD[message]))
    assert "\n" not in str(caught.value)
    assert "toy" in str(caught.value)


def test_isolated_nodes_are_counted_not_refused():
    edges = torch.tensor([[0, 1, 5], [1, 0, 5]])  # a self-loop is not a neighbour
    with pytest.warns(UserWarning, match="toy: 4 nodes have no neighbour"):
        check_graph(make(edges=edges))


def test_symmetrised_is_the_union_of_both_directions():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 9, (2, 40), generator=generator)  # with doubles and self-loops
    A = torch.zeros(9, 9)
    A[edges[0], edges[1]] = 1
    got = symmetrised(edges, 9)
    assert torch.equal(got, torch.maximum(A, A.T).nonzero().T)
    assert torch.equal(symmetrised(got, 9), got)


def test_rows_sum_to_one_and_empty_rows_stay_empty():
    x = torch.tensor([[0.0, 2.0, 6.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    got = row_normalised(to_csr(x))
    expected = x / (x.sum(dim=1, keepdim=True) + 1e-6)
    torch.testing.assert_close(got.to_dense(), expected, rtol=0, atol=0)
    assert got.values().numel() == 3


def test_to_moves_every_tensor():
    graph = make().to("meta")
    tensors = [value for value in vars(graph).values() if torch.is_tensor(value)]
    assert len(tensors) == 6
    assert {tensor.device.type for tensor in tensors} == {"meta"}
