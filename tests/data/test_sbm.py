"""The contextual stochastic block model has the statistics that it was asked for."""

import pytest
import torch

from oversmoothing.data.graphs.sbm import generate
from oversmoothing.errors import InputError


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


def test_the_signal_decides_how_well_features_tell_classes_apart():
    accuracies = []
    for signal in (0.0, 0.2, 1.0):
        graph = generate(signal=signal)
        x = graph.x.to_dense()
        labels = range(graph.num_classes)
        means = torch.stack([x[graph.train & (graph.y == k)].mean(dim=0) for k in labels])
        right = torch.cdist(x, means).argmin(dim=1) == graph.y
        accuracies.append(right[graph.test].double().mean().item())
    assert accuracies[0] < 0.3
    assert 0.4 < accuracies[1] < 0.8
    assert accuracies[2] > 0.95


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


BAD = {
    "data.homophily: expected 0 to 1, got 1.5": {"homophily": 1.5},
    "data.homophily: expected 0 to 1, got nan": {"homophily": float("nan")},
    "data.num_nodes: expected 305 or more here, got 1$": {"num_nodes": 1},
    "data.num_classes: expected 2 or more": {"num_classes": 1},
    "data.degree: expected a number above 0": {"degree": 0},
    "data.degree: 400 neighbours .* more pairs than 1000 nodes": {"degree": 400},
    "data.features: expected 1 or more": {"features": 0},
    "data.signal: expected a number of 0 or more": {"signal": float("inf")},
    "data.train_per_class: expected 1 or more": {"train_per_class": 0},
    "data.num_val: expected 1 or more": {"num_val": 0},
    "data.seed: expected 0": {"seed": -1},
    "data.degree: .*; data.homophily: ": {"degree": -1, "homophily": 2},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_arguments_are_refused_in_one_line(message):
    with pytest.raises(InputError, match=message) as caught:
        generate(**BAD[message])
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_the_defaults_give_a_graph_without_isolated_nodes():
    assert generate().num_nodes == 1000
