"""Gradients of several batches and processes."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from oversmoothing import distributed


def average(nets: Iterable[nn.Module], sums: Tensor) -> Tensor:
    """Turns gradients of summed losses into those of the mean loss, over all processes.

    A network without training node gets no gradient, so that Adam leaves it alone.

    Args:
        nets: S networks.
        sums: for each network the sum of the losses and the number of training nodes, (2, S).

    Returns:
        ``sums`` of all processes together.
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
