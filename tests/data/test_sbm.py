"""The contextual stochastic block model has the statistics that it was asked for."""

import hashlib

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from oversmoothing.lab.arguments import build
from oversmoothing.lab.data import csbm
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.command import configs


@pytest.mark.parametrize("homophily", [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("degree", [4.0, 20.0])
@pytest.mark.filterwarnings("ignore:data sbm. .* no neighbour")
def test_degree_and_homophily_are_as_asked(degree, homophily):
    N = 2000
    graph = generate(num_nodes=N, num_classes=4, degree=degree, homophily=homophily)
    rows, columns = graph.edges
    M = rows.numel() / 2  # number of edges: binomial, mean degree N / 2
    assert abs(M - degree * N / 2) < 5 * (degree * N / 2) ** 0.5
    same = (graph.y[rows] == graph.y[columns]).double().mean().item()
    assert abs(same - homophily) <= 5 * (homophily * (1 - homophily) / M) ** 0.5
    assert (rows != columns).all()
    assert torch.equal(graph.edges, graph.edges.unique(dim=1))


@pytest.mark.parametrize("signal", [0.0, 0.5, 3.0])
def test_the_signal_is_the_length_of_class_means_over_that_of_the_noise(signal):
    graph = generate(num_nodes=2000, num_classes=4, features=2000, signal=signal)
    x = graph.x.to_dense()
    means = torch.stack([x[graph.y == label].mean(dim=0) for label in range(4)])
    noise = (x - means[graph.y]).norm(dim=1).mean()
    # A mean over 500 nodes keeps 1/500 of the noise's squared length.
    lengths = (means.square().sum(dim=1) - noise**2 / 500).clamp(min=0).sqrt()
    torch.testing.assert_close(lengths / noise, torch.full((4,), signal), rtol=0.05, atol=0.03)


def test_masks_are_disjoint_complete_and_balanced():
    graph = generate(num_nodes=300, num_classes=3, train_per_class=7, num_val=50)
    assert graph.y.bincount().tolist() == [100] * 3
    assert graph.y[graph.train].bincount().tolist() == [7] * 3
    assert int(graph.val.sum()) == 50
    total = graph.train.int() + graph.val.int() + graph.test.int()
    assert (total == 1).all()


def test_equal_arguments_give_equal_graphs_whatever_the_global_seed():
    first = generate(seed=3)
    torch.manual_seed(11)
    second, other = generate(seed=3), generate(seed=4)
    for key in ("y", "edges", "train", "val", "test"):
        assert torch.equal(getattr(first, key), getattr(second, key))
    assert torch.equal(first.x.to_dense(), second.x.to_dense())
    assert first.checksum == second.checksum != other.checksum
    assert not torch.equal(first.edges[:, :50], other.edges[:, :50])


@pytest.mark.filterwarnings("error")
def test_the_defaults_give_a_graph_without_isolated_nodes():
    assert generate().num_nodes == 1000


NODES, CLASSES, DRAWS = 11, 3, 1000  # classes of 4, 4 and 3 nodes


def drawn(inside: float, across: float) -> Tensor:
    """How many edges join every two nodes in independent graphs: (DRAWS, N, N), symmetric."""
    generator = torch.Generator().manual_seed(1)
    A = torch.zeros(DRAWS, NODES, NODES, dtype=torch.float64)
    for graph in A:
        rows, columns = csbm.draw(NODES, CLASSES, inside, across, generator)
        graph.index_put_((rows, columns), torch.ones(len(rows)).double(), accumulate=True)
    return A + A.transpose(1, 2)


@pytest.mark.parametrize(("inside", "across"), [(0.3, 0.1), (0.8, 0.6), (1.0, 0.0)])
def test_every_pair_is_joined_independently_with_its_probability(inside, across):
    A, y = drawn(inside, across), torch.arange(NODES) % CLASSES
    assert A.max() == 1 and not A.diagonal(dim1=1, dim2=2).any()
    same = y[:, None] == y
    p = torch.where(same, inside, across).double()
    i, j = torch.triu_indices(NODES, NODES, 1)
    random = (p[i, j] > 0) & (p[i, j] < 1)
    assert torch.equal(A[:, i, j][:, ~random], p[i, j][~random].expand(DRAWS, -1))
    # Centered counts of independent coins: each pair's sum over draws, and every covariance of two
    # pairs, is near zero in units of its standard deviation.
    z = ((A[:, i, j] - p[i, j]) / (p * (1 - p)).sqrt()[i, j])[:, random]
    sums = z.sum(dim=0) / DRAWS**0.5
    correlations = z.T @ z / DRAWS**0.5
    upper = correlations[torch.triu(torch.ones_like(correlations), 1).bool()]
    for squares in (sums.square(), upper.square()):
        if squares.numel():
            assert chi2.sf(squares.sum().item(), squares.numel()) > 1e-3
            assert chi2.cdf(squares.sum().item(), squares.numel()) > 1e-3


def fingerprint(graph: Graph) -> str:
    parts = (graph.y, graph.edges, graph.train, graph.val, graph.test)
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()[:12]


def test_a_graph_is_the_same_on_every_machine():
    assert (fingerprint(generate()), generate().checksum) == ("de61fbf1ff7e", "e8774fba7fae")


def test_a_sweep_draws_its_graph_once(monkeypatch):
    drawn, draw = [], csbm.draw
    monkeypatch.setattr(csbm, "draw", lambda *a: drawn.append(a) or draw(*a))
    runs = configs(["data.num_nodes=321", "backbone.depth=2,3"], multirun=True)
    first, second = (build(config.data) for config in runs)
    assert first is second and len(drawn) == 1
