"""Edges of a stochastic block model, in time and memory linear in their number."""

import torch
from torch import Tensor


def draw(
    num_nodes: int, num_classes: int, inside: float, across: float, generator: torch.Generator
) -> Tensor:
    """Joins every pair of nodes independently; the class of node i is i mod num_classes.

    A coin for each pair takes quadratic time. Here the number of heads is drawn first, which is
    binomial; given their number, every set of pairs of that size is equally likely. The graphs
    have the same distribution. Pairs are numbered; the numbers of some stand for no pair (a node
    that does not exist, or two of one class among the pairs across), and are drawn as well and
    dropped.

    Args:
        num_nodes: N.
        num_classes: K; classes are equally large up to one node.
        inside: probability of an edge between two nodes of one class.
        across: probability of an edge between two nodes of different classes.
        generator: on the CPU.

    Returns:
        (2, E): every edge in one direction, without order.
    """
    N, K = num_nodes, num_classes
    slots = -(-N // K)  # nodes of the largest class: k, k + K, k + 2K, …
    number = _heads(K * _num_pairs(slots), inside, generator)
    own = _pair(number // K, slots) * K + number % K
    own = own[:, (own < N).all(dim=0)]
    other = _pair(_heads(_num_pairs(N), across, generator), N)
    other = other[:, other[0] % K != other[1] % K]
    return torch.cat([own, other], dim=1)


def _num_pairs(n: int) -> int:
    return n * (n - 1) // 2


def _pair(number: Tensor, n: int) -> Tensor:
    """Two of n items: numbers 0 … n(n - 1)/2 - 1 (E,) -> (2, E), every pair once.

    The items stand in a circle. A pair has a first item and the steps from there to the second, at
    most half a turn. If n is even, the pairs half a turn apart come last and only once.
    """
    first = number % n
    return torch.stack([first, (first + number // n + 1) % n])


def _heads(coins: int, probability: float, generator: torch.Generator) -> Tensor:
    """Throws coins; returns the numbers of those that show heads, (E,), sorted.

    Distinct numbers are drawn one after the other, and a number that was drawn before is ignored.
    """
    size = torch.tensor(coins, dtype=torch.float64)
    chance = torch.tensor(probability, dtype=torch.float64)
    count = int(torch.binomial(size, chance, generator=generator))
    if 2 * count > coins:  # most numbers drawn would be repetitions
        return torch.randperm(coins, generator=generator)[:count].sort().values
    heads = torch.empty(0, dtype=torch.int64)
    while missing := count - len(heads):  # never too many are drawn: none is chosen to be dropped
        more = torch.randint(coins, (missing,), generator=generator)
        heads = torch.cat([heads, more]).unique()
    return heads
