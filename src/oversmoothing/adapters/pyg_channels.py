"""Finds the numbers of channels that a graph convolution of torch-geometric mixes and returns."""

from collections.abc import Sequence
from copy import deepcopy
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.channels import channels
from oversmoothing.adapters.sites import Factory
from oversmoothing.aggregators.base import wants_dim
from oversmoothing.errors import InputError

WIDTHS = ("in_channels", "channels", "in_features", "out_channels")  # attributes with those of x


def mixed_channels(conv: nn.Module, factories: Sequence[Factory], width: int | None = None) -> int:
    """Finds the number of channels that a convolution mixes, by a call on two nodes.

    It is 0 if no factory asks for it.

    Args:
        conv: the convolution.
        factories: of aggregators inside it.
        width: channels of its input; None: taken from its attributes.

    Raises:
        InputError: the number cannot be found.
    """
    if not any(map(wants_dim, factories)):
        return 0
    found: set[int] = set()
    probe = deepcopy(conv).eval()
    probe.register_propagate_forward_hook(lambda *call: found.add(call[-1].shape[-1]))
    if _called(probe, width) is not None and len(found) == 1:
        return found.pop()
    raise InputError(
        f"aggregator: cannot tell how many channels {type(conv).__name__} mixes; give a factory "
        "that knows, for example lambda: Method(dim=64)"
    )


def output_channels(conv: nn.Module, factories: Sequence[Factory]) -> int:
    """Finds the number of channels of a convolution's output, by a call on two nodes.

    If the call fails, the number is read from attributes. It is 0 if no factory asks for it.

    Raises:
        InputError: the number cannot be found.
    """
    if not any(map(wants_dim, factories)):
        return 0
    out = _called(deepcopy(conv).eval())
    return out.shape[-1] if isinstance(out, Tensor) else channels(conv, factories)


def _called(probe: nn.Module, width: int | None = None) -> Any:
    """Returns the output of a convolution for two nodes; None if an argument is missing."""
    try:
        with torch.random.fork_rng(devices=[]):  # the call initialises lazy parameters
            return _call(probe, width or _width(probe))
    except Exception:  # a convolution may raise any error
        return None


def _width(conv: nn.Module) -> int | tuple[int, ...]:
    of_parts = (getattr(part, name, None) for part in conv.modules() for name in WIDTHS)
    return next(size for size in of_parts if isinstance(size, int | tuple))


@torch.no_grad()
def _call(conv: nn.Module, size: int | tuple[int, ...]) -> Any:
    """Calls a convolution on two nodes that are joined by an edge."""
    like = next(conv.parameters(), torch.empty(0))
    pair = tuple(like.new_zeros(2, own) for own in (size if isinstance(size, tuple) else [size]))
    x = pair if isinstance(size, tuple) else pair[0]
    edges = torch.tensor([[0, 1], [1, 0]], device=like.device)
    given = {"x": x, "x_0": x, "edge_index": edges}
    if isinstance(width := getattr(conv, "edge_dim", None), int):
        given["edge_attr"] = like.new_zeros(2, width)
    return conv.forward(
        **{k: v for k, v in given.items() if k in signature(conv.forward).parameters}
    )
