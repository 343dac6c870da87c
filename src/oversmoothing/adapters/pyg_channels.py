"""Finds the number of channels that a graph convolution of torch-geometric mixes."""

from collections.abc import Sequence
from copy import deepcopy
from inspect import signature

import torch
from torch import nn

from oversmoothing.adapters.sites import Factory
from oversmoothing.aggregators.base import wants_dim
from oversmoothing.errors import InputError

WIDTHS = ("in_channels", "channels", "in_features", "out_channels")  # attributes with those of x


def mixed_channels(
    conv: nn.Module, factories: Sequence[Factory], channels: int | None = None
) -> int:
    """Finds the number of channels that a convolution mixes, by a call on two nodes.

    It is 0 if no factory asks for it.

    Args:
        conv: the convolution.
        factories: of aggregators inside it.
        channels: of its input; None: taken from its attributes.

    Raises:
        InputError: the number cannot be found.
    """
    if not any(map(wants_dim, factories)):
        return 0
    found: set[int] = set()
    try:
        probe = deepcopy(conv).eval()
        probe.register_propagate_forward_hook(lambda *call: found.add(call[-1].shape[-1]))
        with torch.random.fork_rng(devices=[]):  # the call initialises lazy parameters
            _call(probe, channels or _width(probe))
    except Exception:  # a convolution may raise any error if an argument is missing
        found.clear()
    if len(found) == 1:
        return found.pop()
    raise InputError(
        f"aggregator: cannot tell how many channels {type(conv).__name__} mixes; give a factory "
        "that knows, for example lambda: Method(dim=64)"
    )


def _width(conv: nn.Module) -> int | tuple[int, ...]:
    of_parts = (getattr(part, name, None) for part in conv.modules() for name in WIDTHS)
    return next(size for size in of_parts if isinstance(size, int | tuple))


@torch.no_grad()
def _call(conv: nn.Module, size: int | tuple[int, ...]) -> None:
    """Calls a convolution on two nodes that are joined by an edge."""
    like = next(conv.parameters(), torch.empty(0))
    pair = tuple(like.new_zeros(2, own) for own in (size if isinstance(size, tuple) else [size]))
    x = pair if isinstance(size, tuple) else pair[0]
    edges = torch.tensor([[0, 1], [1, 0]], device=like.device)
    given = {"x": x, "x_0": x, "edge_index": edges}
    if isinstance(width := getattr(conv, "edge_dim", None), int):
        given["edge_attr"] = like.new_zeros(2, width)
    conv.forward(**{k: v for k, v in given.items() if k in signature(conv.forward).parameters})
