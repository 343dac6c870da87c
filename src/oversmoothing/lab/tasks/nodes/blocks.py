"""Computes graph convolutions over whole graphs with little memory."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

MOST = 8


@contextmanager
def in_blocks(model: nn.Module) -> Iterator[None]:
    """Context in which convolutions compute their messages in up to 8 blocks of channels.

    The messages (E, C) are the largest tensors of a pass over a whole graph without gradient. This
    sets ``decomposed_layers`` of torch-geometric's convolutions. Convolutions whose messages need
    all channels at once, such as TransformerConv, are not changed.
    """
    convs = [module for module in model.modules() if _divides(module)]
    held = [vars(conv).get("propagate") for conv in convs]
    for conv in convs:
        conv.decomposed_layers = _number(conv)
    hooks = [conv.register_propagate_forward_pre_hook(_of_sources) for conv in convs]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for conv, propagate in zip(convs, held):
            conv.decomposed_layers = 1
            vars(conv).pop("propagate", None)
            if propagate is not None:
                conv.propagate = propagate


def _divides(module: nn.Module) -> bool:
    """Whether each channel of the messages depends only on the same channel of x_j."""
    if not hasattr(module, "decomposed_layers"):
        return False
    from torch_geometric.nn.aggr import MultiAggregation  # installed, since module is from it

    several = isinstance(module.aggr_module, MultiAggregation)  # blocks would reorder its channels
    if several or [*module.aggr_module.parameters()]:
        return False
    of_nodes = {n for n in inspect.signature(module.message).parameters if n[-2:] in ("_i", "_j")}
    return of_nodes == {"x_j"}


def _of_sources(_: nn.Module, arguments: tuple) -> tuple:
    """Removes the features of targets, which no message reads and which cannot be divided.

    Arguments with a sparse matrix instead of edges are not changed, since it forms no messages.
    """
    edges, size, kwargs = arguments
    x = kwargs["x"]
    if edges.layout != torch.strided or not isinstance(x, tuple):
        return arguments
    return edges, size, kwargs | {"x": x[0]}


def _number(conv: nn.Module) -> int:
    """Returns the largest number k of blocks that input and output allow: C ≥ k (k − 1)."""
    names = ("in_channels", "out_channels", "channels")
    sizes = [getattr(conv, name, None) for name in names]
    least = min((size for size in sizes if isinstance(size, int) and size > 0), default=1)
    return max(k for k in range(1, MOST + 1) if least >= k * (k - 1))
