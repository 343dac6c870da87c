"""Checks of graphs, and their helper functions."""

import dataclasses

import pytest
import torch

from oversmoothing.lab.data.graph import Graph, check_graph, to_csr


def make(**changes) -> Graph:
    """Six nodes of two classes on a path."""
    mask = torch.zeros(6, dtype=torch.bool)
    graph = Graph(
        name="toy",
        x=to_csr(torch.eye(6)),
        y=torch.tensor([0, 1, 0, 1, 0, 1]),
        edges=torch.tensor([[0, 1, 2, 3, 4, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0, 1, 2, 3, 4]]),
        num_classes=2,
        train=mask.index_fill(0, torch.tensor([0, 1]), True),
        val=mask.index_fill(0, torch.tensor([2, 3]), True),
        test=mask.index_fill(0, torch.tensor([4, 5]), True),
        checksum="0",
    )
    return dataclasses.replace(graph, **changes)


def test_isolated_nodes_are_counted_not_refused():
    edges = torch.tensor([[0, 1, 5], [1, 0, 5]])  # a self-loop is not a neighbour
    with pytest.warns(UserWarning, match="toy: 4 nodes have no neighbour"):
        check_graph(make(edges=edges))


def test_to_moves_every_tensor():
    graph = make().to("meta")
    tensors = [value for value in vars(graph).values() if torch.is_tensor(value)]
    assert len(tensors) == 6
    assert {tensor.device.type for tensor in tensors} == {"meta"}
