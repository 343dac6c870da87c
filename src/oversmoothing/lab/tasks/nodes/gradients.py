"""Averages gradients over several batches and processes."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from oversmoothing import distributed


def average(nets: Iterable[nn.Module], sums: Tensor) -> Tensor:
    """Converts gradients of summed losses to gradients of the mean loss over all processes.

    A network without training nodes in these batches gets no gradient, so Adam does not change it.

    Args:
        nets: S networks.
        sums: the sum of the losses and the number of training nodes of each network, (2, S).

    Returns:
        ``sums``, summed over all processes.
    """
    held = [[p for p in net.parameters() if p.requires_grad] for net in nets]
    every = [p for of_net in held for p in of_net]
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in every]
    flat = torch.cat([sums.flatten(), *(grad.flatten() for grad in grads)])
    [flat] = distributed.sum_over_processes([flat])
    sums, *grads = flat.split([sums.numel(), *(p.numel() for p in every)])
    sums = sums.view(2, -1)
    counts = [count for count, of_net in zip(sums[1].tolist(), held) for _ in of_net]
    for p, grad, count in zip(every, grads, counts):
        p.grad = (grad / count).view_as(p) if count else None
    return sums
