"""``trainer.compile``: torch.compile during the training."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn


@contextlib.contextmanager
def compiled(network: nn.Module, wanted: bool = True) -> Iterator[None]:
    """Context in which the backbone of a network is compiled for all its callers.

    So the passes for pseudo labels are compiled, too. Evaluation is outside the context, since it
    has images of many sizes, each of which would be compiled anew.

    Methods listed in ``uncompiled`` of a module are not compiled. They are marked here and not by a
    decorator, since importing the decorator takes longer than importing the network.

    Args:
        network: its ``backbone`` is compiled, or the whole network if it has none.
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
