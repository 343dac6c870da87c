"""Parts of a graph: draws of batches, and refusals."""

import sys
from typing import Any

import pytest
import torch
from small_parts import N, batches, graph

from oversmoothing.aggregators.centered import Centered
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.data.graph import to_csr
from oversmoothing.lab.tasks import nodes_minibatch
from oversmoothing.lab.tasks.base import Parts
from oversmoothing.lab.tasks.nodes import Nodes
from oversmoothing.lab.tasks.nodes_minibatch import (
    ClusterAdam,
    RandomNodeAdam,
    rows,
)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "trainer", [RandomNodeAdam(num_parts=3), ClusterAdam(num_parts=7, parts_per_batch=2)]
)
def test_batches_divide_the_nodes_and_keep_the_edges_between_theirs(
    trainer: Any, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = lambda edges, N, parts: torch.arange(N) * 5 % parts  # noqa: E731
    monkeypatch.setattr(nodes_minibatch, "metis", fixed)
    given = graph(weighted)
    values = given.weights if weighted else torch.ones(given.edges.shape[1]).double()
    matrix = torch.zeros(N, N).double().index_put(tuple(given.edges), values)
    found = batches(trainer, given)
    assert torch.equal(torch.cat([batch.n_id for batch in found]).sort().values, torch.arange(N))
    for batch in found:
        nodes, (source, target) = batch.n_id, batch.edge_index
        own = batch.edge_weight if weighted else torch.ones(len(source)).double()
        part = torch.zeros(len(nodes), len(nodes)).double().index_put((target, source), own)
        assert torch.equal(part, matrix[nodes][:, nodes])


def test_metis_makes_parts_of_like_size_with_few_edges_between() -> None:
    pytest.importorskip("pymetis")
    ring = torch.arange(100)
    edges = torch.stack([ring, (ring + 1) % 100])  # directed; METIS needs both directions
    part = nodes_minibatch.metis(torch.cat([edges, torch.zeros(2, 1).long()], dim=1), 100, 4)
    assert part.bincount().tolist() == pytest.approx([25] * 4, abs=2)
    assert (part[edges[0]] != part[edges[1]]).sum() <= 8
    assert torch.equal(part, nodes_minibatch.metis(edges, 100, 4))


def test_rows_of_sparse_features() -> None:
    x = torch.randn(9, 5).relu() * (torch.arange(9) != 4)[:, None]
    nodes = torch.tensor([7, 4, 0, 7])
    assert torch.equal(rows(to_csr(x), nodes), x[nodes])


def test_missing_packages_and_networks_of_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(InputError, match=r"pip install pymetis.*trainer=minibatch_random"):
        ClusterAdam().sampler(graph())
    parts = Parts([Centered], GCN, RandomNodeAdam(), Nodes.toy)
    network = Nodes().network(parts, [0], torch.device("cpu"))
    with pytest.raises(InputError, match=r"GCN runs on the whole graph only.*backbone=pyg"):
        Nodes().check(network, parts)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"accumulate: 1 .* 2 processes; set it to 2"):
        RandomNodeAdam()
