"""``trainer.compile``: torch.compile for the time of the training."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn


@contextlib.contextmanager
def compiled(network: nn.Module, wanted: bool = True) -> Iterator[None]:
    """Context in which the backbone of a network is compiled, whichever method calls it.

    So the passes behind pseudo labels are compiled, too. Evaluation comes after the training and
    is not: it sees images of many sizes, each of which would be compiled anew.

    Args:
        network: its ``backbone`` is compiled; all of it where it has none.
        wanted: if false, nothing is compiled.
    """
    host = getattr(network, "backbone", network)
    if wanted:
        host.forward = torch.compile(host.forward)
    try:
        yield
    finally:
        if wanted:
            del host.forward
