"""GPRGNN, DAGNN, GraphCON and G²: dense float64 forms, and the networks that they reduce to."""

from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from small_gcn import CLASSES, F, N, graph, network
from torch import Tensor

from oversmoothing.aggregators.centered import Centered
from oversmoothing.lab.backbones.engine import Engine


def dense(adjacency: str = "row", gamma: float = 0.0) -> Tensor:
    """Ã + γ 11ᵀ/n in float64."""
    _, edges = graph()
    a = torch.eye(N, dtype=torch.float64).index_put(tuple(edges), torch.ones(()).double())
    degree = a.sum(dim=1, keepdim=True)
    return (a / degree if adjacency == "row" else a / (degree * degree.mT).sqrt()) + gamma / N


def exact(model: Engine) -> dict[str, Tensor]:
    """The parameters of the first seed in float64."""
    return {
        name: own[0].double() for name, own in model.state_dict().items() if "seeds" not in name
    }


def read_in(own: dict[str, Tensor]) -> Tensor:
    return (graph()[0].double() @ own["dense.0.weight"] + own["dense.0.bias"]).relu()


def read_out(own: dict[str, Tensor], h: Tensor) -> Tensor:
    return h @ own["dense.1.weight"] + own["dense.1.bias"]


def perturbed(model: Engine) -> Engine:
    """Moves every parameter from its initial value."""
    generator = torch.Generator().manual_seed(5)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model.eval()


@pytest.mark.parametrize("depth", [1, 2, 9])
@pytest.mark.parametrize("gamma", [0.0, -1.0])
def test_gprgnn_is_its_equation(depth: int, gamma: float) -> None:
    model = perturbed(network("gprgnn", partial(Centered, gamma), depth=depth))
    own = exact(model)
    h, z = read_out(own, read_in(own)), 0.0
    for weight in own["gamma"]:
        z, h = z + weight * h, dense(gamma=gamma) @ h
    torch.testing.assert_close(model()[0].double(), z, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_gprgnn_starts_as_appnp(alpha: float) -> None:
    model = network("gprgnn", depth=7, alpha=alpha, adjacency="symmetric").eval()
    start, edges = model.logits()[0], graph()[1]
    torch.testing.assert_close(model()[0], pyg.APPNP(7, alpha)(start, edges))
    assert model.gamma.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("adjacency", ["row", "symmetric"])
def test_dagnn_is_its_equation(adjacency: str) -> None:
    model = perturbed(network("dagnn", depth=6, adjacency=adjacency))
    own = exact(model)
    h, z = read_out(own, read_in(own)), 0.0
    for _ in range(7):
        z = z + (h @ own["dense.2.weight"] + own["dense.2.bias"]).sigmoid() * h
        h = dense(adjacency) @ h
    torch.testing.assert_close(model()[0].double(), z, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("share_weights", [True, False])
def test_graphcon_is_its_equation(share_weights: bool) -> None:
    options = {"dt": 0.3, "gamma": 0.7, "alpha": 0.2, "share_weights": share_weights}
    model = perturbed(network("graphcon", partial(Centered, -0.5), depth=5, **options))
    own, a = exact(model), dense(gamma=-0.5)
    x = y = read_in(own)
    for layer in range(5):
        at = 0 if share_weights else layer
        mixed = a @ x @ own[f"weights.{at}"] + x @ own[f"linear.{at}"] + own[f"biases.{at}"]
        y = y + 0.3 * (mixed.relu() - 0.7 * x - 0.2 * y)
        x = x + 0.3 * y
    torch.testing.assert_close(model()[0].double(), read_out(own, x), rtol=1e-5, atol=1e-5)


def test_graphcon_with_steps_of_one_is_a_gcn_also_with_dropout() -> None:
    """X + (relu(conv X) − X − Y) + Y = relu(conv X)."""
    ones = {"dt": 1.0, "gamma": 1.0, "alpha": 1.0}
    model = network("graphcon", depth=4, **ones).train()
    theirs = network("graphcon", depth=4, **ones).train()
    theirs.renew()
    h = theirs.read_in()
    for layer in range(4):
        h = theirs.convolved(theirs.seeds.dropout(h, theirs.rate), layer)
    expected = theirs.dense[1](theirs.seeds.dropout(h, theirs.rate))
    torch.testing.assert_close(model(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["g2", "g2-untied"])
@pytest.mark.parametrize("adjacency", ["row", "symmetric"])
def test_g2_is_its_equation(kind: str, adjacency: str) -> None:
    model = perturbed(network(kind, depth=4, adjacency=adjacency, init="normal"))
    own, a, p = exact(model), dense(adjacency), model.options.p
    neighbours = (dense() > 0).double().fill_diagonal_(0)
    neighbours = neighbours / neighbours.sum(dim=1, keepdim=True)
    x = read_in(own)
    for layer in range(4):
        at, gate = (0, 1) if kind == "g2" else (layer, layer)
        update, compared = ((a @ x @ own[f"weights.{i}"] + own[f"biases.{i}"]).relu()
                            for i in (at, gate))  # fmt: skip
        differences = (compared[:, None] - compared[None]).abs() ** p
        tau = torch.einsum("ij,ijk->ik", neighbours, differences).tanh()
        x = (1 - tau) * x + tau * update
    torch.testing.assert_close(model()[0].double(), read_out(own, x), rtol=1e-5, atol=1e-5)


def test_g2_compares_a_node_with_those_whose_messages_it_gets() -> None:
    """The first node sends to all others and gets nothing, so its gate is closed."""
    x, edges = graph()
    downward = edges[:, edges[0] > edges[1]]  # row i receives from column j < i
    model = perturbed(type(network("g2"))([], x, downward, CLASSES, [0], depth=3, init="normal"))
    hidden: list[Tensor] = []
    model(hidden)
    kept = (hidden[-1] == model.read_in()).all(dim=-1)[0]
    assert (0 in downward[1]) and torch.equal(kept, downward[0].bincount(minlength=N) == 0)


def test_g2_keeps_nodes_without_neighbours() -> None:
    build, empty = type(network("g2")), torch.empty(2, 0, dtype=torch.long)
    model = perturbed(build([], graph()[0], empty, CLASSES, [0], depth=3))
    torch.testing.assert_close(model(), model.dense[1](model.read_in()))


@pytest.mark.parametrize("kind", ["gprgnn", "dagnn", "graphcon", "g2"])
def test_one_layer_works_and_every_layer_is_seen(kind: str) -> None:
    for depth in (1, 4):
        hidden: list[Tensor] = []
        model = network(kind, depth=depth, seeds=(0, 1)).eval()
        assert model(hidden).shape == (2, N, CLASSES) and len(hidden) == depth
    mlp = F * 32 + 32 + 32 * CLASSES + CLASSES
    extra = {"gprgnn": 5, "dagnn": CLASSES + 1, "graphcon": 2 * 32**2 + 32, "g2": 2 * 33 * 32}
    assert sum(p.numel() for p in model.parameters()) == 2 * (mlp + extra[kind])
