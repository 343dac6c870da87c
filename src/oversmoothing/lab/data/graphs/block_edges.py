"""Edges of a stochastic block model, in time and memory linear in their number."""

import torch
from torch import Tensor


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
