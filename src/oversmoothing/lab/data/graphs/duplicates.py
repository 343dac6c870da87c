"""Finds duplicate nodes of Chameleon and Squirrel, which leak test labels into the training set.

They were found by Platonov et al., 2023, "A critical look at the evaluation of GNNs under
heterophily" (https://arxiv.org/abs/2302.11640). Here, duplicates are nodes with the same class and
links from the same pages. Of all rules that the raw files allow, this one gives graphs closest in
size to those of the paper.
"""

import torch
from torch import Tensor


def first_of_each(edge_index: Tensor, y: Tensor) -> Tensor:
    """Marks the nodes that are the first with their class and their set of incoming links.

    Most duplicates are pages to which no other page of the graph links.

    Args:
        edge_index: source and target of every link, (2, E), each once.
        y: labels (N,).

    Returns:
        Boolean (N,).
    """
    N = y.shape[0]
    sources, targets = edge_index[:, (edge_index[1] * N + edge_index[0]).argsort()]
    per_node = sources.split(targets.bincount(minlength=N).tolist())
    first: dict[tuple[int, ...], int] = {}
    for node, links in enumerate(per_node):
        first.setdefault((int(y[node]), *links.tolist()), node)
    return torch.zeros(N, dtype=torch.bool).index_fill(0, torch.tensor(list(first.values())), True)
