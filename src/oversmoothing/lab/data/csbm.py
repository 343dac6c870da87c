"""Generates graphs of the contextual stochastic block model, without any download.

Deshpande et al., 2018, "Contextual Stochastic Block Models" (https://arxiv.org/abs/1807.09596),
with more than two classes.
"""

import json

import torch
from torch import Tensor

from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.graph import Graph, build, kept
from oversmoothing.lab.store.files import short_sha256


@kept
def generate(
    num_nodes: int = 1000,
    num_classes: int = 5,
    degree: float = 10.0,
    homophily: float = 0.6,
    features: int = 100,
    signal: float = 0.2,
    train_per_class: int = 20,
    num_val: int = 200,
    seed: int = 0,
) -> Graph:
    r"""Draws a graph in time and memory linear in its nodes and edges.

    The same arguments give the same graph. Within a process they give the same object, so its
    tensors must not be changed.

    Class sizes differ by one node at most. Every pair of nodes is joined independently. The
    probabilities inside a class and across follow from ``degree`` and ``homophily``. Features are
    class means plus noise,

    .. math:: B_i = s\, u_{y_i} + Z_i / \sqrt F, \quad u_k \sim N(0, I / F), \; Z_i \sim N(0, I),

    so :math:`s` is the length of a class mean divided by the length of the noise
    (:math:`\sqrt{\mu / n}` in the paper, which has two classes with means u and -u).

    Args:
        num_nodes: N.
        num_classes: 2 or more.
        degree: expected number of neighbours of a node.
        homophily: expected fraction of edges inside a class; at 1 / num_classes the edges contain
            no information on the labels.
        features: F.
        signal: s; at 0 the features contain no information on the labels.
        train_per_class: training nodes of every class, drawn at random.
        num_val: validation nodes, drawn from the others; the rest are test nodes.
        seed: of the graph, not of the networks that are trained on it.

    Raises:
        InputError: an argument is out of range, or there are too few nodes or pairs.
    """
    text = json.dumps({"edges": "block_edges", **locals()}, sort_keys=True)
    checksum = short_sha256(text.encode())
    needed = num_classes * (train_per_class + 1) + num_val  # leaves test nodes
    terms = "num_classes · (train_per_class + 1) + num_val"
    require(
        "data",
        **at_least(2, num_classes=num_classes),
        degree=(degree, 0 < degree < float("inf"), "a number above 0"),
        homophily=(homophily, 0 <= homophily <= 1, "0 to 1"),
        **at_least(1, features=features),
        signal=(signal, 0 <= signal < float("inf"), "a number of 0 or more"),
        **at_least(1, train_per_class=train_per_class, num_val=num_val),
        seed=(seed, 0 <= seed < 2**63, "0 to 2**63 - 1"),
        num_nodes=(num_nodes, num_nodes >= needed, f"{needed} or more, which is {terms}"),
    )
    generator = torch.Generator().manual_seed(seed)
    N, K = num_nodes, num_classes
    inside, across = _probabilities(N, K, degree, homophily)
    order = torch.randperm(N, generator=generator)
    edges = order.argsort()[draw(N, K, inside, across, generator)]
    y = order % K
    masks = _masks(y, train_per_class, num_val, generator)
    x = _features(y, K, features, signal, generator)
    return build("sbm", x, y, edges, masks, N, checksum=checksum)


def draw(
    num_nodes: int, num_classes: int, inside: float, across: float, generator: torch.Generator
) -> Tensor:
    """Joins every pair of nodes independently; the class of node i is i mod num_classes.

    One random number for each pair would take quadratic time. Instead, the number of edges is drawn
    from the binomial distribution, and then a uniformly random set of that many pairs. The
    distribution of the graphs is the same. Pairs are drawn by their numbers. Some numbers do not
    stand for a valid pair (a node does not exist, or a pair across has two nodes of one class);
    they are drawn and then dropped.

    Args:
        num_nodes: N.
        num_classes: K; class sizes differ by one node at most.
        inside: probability of an edge between two nodes of one class.
        across: probability of an edge between two nodes of different classes.
        generator: on the CPU.

    Returns:
        (2, E): every edge in one direction, in any order.
    """
    N, K = num_nodes, num_classes
    slots = -(-N // K)  # nodes of the largest class: k, k + K, k + 2K, …
    number = _successes(K * _num_pairs(slots), inside, generator)
    own = _pair(number // K, slots) * K + number % K
    own = own[:, (own < N).all(dim=0)]
    other = _pair(_successes(_num_pairs(N), across, generator), N)
    other = other[:, other[0] % K != other[1] % K]
    return torch.cat([own, other], dim=1)


def _num_pairs(n: int) -> int:
    return n * (n - 1) // 2


def _pair(number: Tensor, n: int) -> Tensor:
    """Returns the pair of items that each number stands for; every pair has one number.

    The n items lie on a circle. A number encodes the first item and the distance to the second, at
    most half the circle. If n is even, opposite items come last and once.

    Shapes: numbers from 0 to n(n - 1)/2 - 1 (E,) -> (2, E).
    """
    first = number % n
    return torch.stack([first, (first + number // n + 1) % n])


def _successes(trials: int, probability: float, generator: torch.Generator) -> Tensor:
    """Returns the sorted indices of the successes in independent random trials, (E,).

    The number of successes is binomial. Distinct indices are then drawn one after another;
    repeated ones are ignored.
    """
    size = torch.tensor(trials, dtype=torch.float64)
    chance = torch.tensor(probability, dtype=torch.float64)
    count = int(torch.binomial(size, chance, generator=generator))
    if 2 * count > trials:  # most indices drawn would be repetitions
        return torch.randperm(trials, generator=generator)[:count].sort().values
    indices = torch.empty(0, dtype=torch.int64)
    while missing := count - len(indices):  # never draws more than are missing
        more = torch.randint(trials, (missing,), generator=generator)
        indices = torch.cat([indices, more]).unique()
    return indices


def _probabilities(N: int, K: int, degree: float, homophily: float) -> tuple[float, float]:
    """Returns the probabilities of an edge inside a class and across."""
    small, larger = N // K, N % K  # nodes of a class, and number of classes with one more
    pairs_inside = K * small * (small - 1) // 2 + larger * small
    pairs_across = N * (N - 1) // 2 - pairs_inside
    inside = homophily * degree * N / 2 / pairs_inside
    across = (1 - homophily) * degree * N / 2 / pairs_across
    if max(inside, across) > 1:
        raise InputError(
            f"data.degree: {degree} neighbours per node with data.homophily={homophily} need more "
            f"pairs than {N} nodes in {K} classes have; lower it or raise data.num_nodes"
        )
    return inside, across


def _features(y: Tensor, K: int, F: int, signal: float, generator: torch.Generator) -> Tensor:
    """Draws features: class means plus noise. Shapes: y (N,) -> (N, F)."""
    u = torch.randn(K, F, generator=generator)
    Z = torch.randn(y.shape[0], F, generator=generator)
    return Z.add_((signal * u)[y]).div_(F**0.5)


def _masks(
    y: Tensor, train_per_class: int, num_val: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws a partition into training, validation and test nodes: y (N,) -> three boolean (N,)."""
    train, val = torch.zeros_like(y, dtype=torch.bool), torch.zeros_like(y, dtype=torch.bool)
    order = torch.randperm(y.shape[0], generator=generator)
    labels, by_class = y[order].sort(stable=True)
    sizes = labels.bincount()
    place = torch.arange(y.shape[0]) - (sizes.cumsum(0) - sizes)[labels]  # index in the class
    train[order[by_class[place < train_per_class]]] = True
    val[order[~train[order]][:num_val]] = True
    return train, val, ~(train | val)
