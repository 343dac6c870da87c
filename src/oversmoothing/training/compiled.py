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

    Methods that a module names in ``uncompiled`` are called as they are. They are marked here and
    not by a decorator, whose import takes longer than that of the network.

    Args:
        network: its ``backbone`` is compiled; all of it where it has none.
        wanted: if false, nothing is compiled.
    """
    host = getattr(network, "backbone", network)
    changed = [(host, "forward", torch.compile)] if wanted else []
    for module in host.modules() if wanted else ():
        names = getattr(module, "uncompiled", ())
        changed += [(module, name, torch.compiler.disable) for name in names]
    for module, name, change in changed:
        setattr(module, name, change(getattr(module, name)))
    try:
        yield
    finally:
        for module, name, _ in changed:
            delattr(module, name)
