"""Aggregators inside a graph convolution of torch-geometric, where it calls ``propagate``.

Hooks on ``propagate`` cannot be used, since torch-geometric skips them under ``torch.compile``.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.attention import Swapped, subclass
from oversmoothing.adapters.pyg_edges import entries_of, mixes, with_edges
from oversmoothing.adapters.replay import random_state, replayed
from oversmoothing.adapters.site import Site
from oversmoothing.errors import InputError

VALUES = ("x", "value", "v")  # names of the values that convolutions propagate


class InsidePropagate(Site):
    """Acts on the product of M and V that ``propagate`` computes.

    ``Context.row_sum`` has the shape of the product, since gates may weight channels differently.
    """

    name = "inside"
    checked = False  # whether propagate is known to be a product

    def connect(self, module: nn.Module) -> None:
        _forget_product(module)
        swap(module, subclass(type(module), Propagating))

    def detach(self, module: nn.Module) -> None:
        _forget_product(module)
        swap(module, module.plain)
        super().detach(module)

    def mix(self, conv: nn.Module, propagate: Callable, edges: Any, kwargs: dict) -> Tensor:
        """Calls ``propagate`` and applies the aggregators; tokens are at ``node_dim``."""
        device = _device(kwargs)
        state = random_state(conv, device)
        mixed = propagate(edges, **kwargs)
        v = _values(conv, kwargs, mixed)
        self._require_linear(conv, propagate, edges, kwargs)
        tensors = [t.movedim(conv.node_dim, -2) for t in (mixed, v.to(mixed.dtype))]
        context = self.context
        if any(getattr(aggregator, "row_sum", True) for aggregator in self):
            with replayed(device, state):  # drops the same edges as above
                sums = propagate(edges, **kwargs | _filled(kwargs, torch.ones_like))
            context = replace(context, row_sum=sums.movedim(conv.node_dim, -2))
        context = with_edges(context, self, conv, edges, mixed.shape[conv.node_dim])
        return self.act(*tensors, context=context).movedim(-2, conv.node_dim).contiguous()

    @torch.no_grad()
    def _require_linear(
        self, conv: nn.Module, propagate: Callable, edges: Any, kwargs: dict
    ) -> None:
        """Checks that ``propagate`` is a product of a matrix and the values, channel by channel.

        The result is kept if a node received messages of two nodes; with only one message per node
        a nonlinear mixing cannot be told from a linear one.
        """
        if self.checked:
            return
        if torch.compiler.is_compiling():
            raise InputError("model: call it once before torch.compile, to check its mixing")
        device, several = _device(kwargs), []
        state = random_state(conv, device)
        for change in (_drawn, lambda t: -(_drawn(t) ** 3), lambda t: _drawn(t) - _drawn(t) ** 3):
            with replayed(device, state):
                several.append(propagate(edges, **kwargs | _filled(kwargs, change)).float())
        first, second, both = several
        size = max(float(t.abs().amax()) if t.numel() else 0.0 for t in several)
        noise = {"rtol": 1e-2, "atol": 1e-2 * size}  # rounding in half precision
        if not torch.allclose(first + second, both, **noise, equal_nan=True):
            raise InputError(
                f"model: {type(conv).__name__} does more than mix the values linearly (a maximum, "
                "a network on messages, an update()), so aggregators cannot act inside; choose one "
                "that acts after the convolution"
            )
        half = propagate(edges, **kwargs | _filled(kwargs, _even_channels)).float()
        if not torch.allclose(half[..., 1::2], torch.zeros(()).to(half), atol=1e-2 * size):
            raise InputError(
                f"model: {type(conv).__name__} mixes the channels of its messages (by a weight "
                "matrix, for example), so aggregators cannot act inside; choose one that acts "
                "after the convolution"
            )
        self.checked = mixes(entries_of(conv, edges))


class Propagating(Swapped):
    """A convolution with aggregators inside, in all variants of ``propagate``."""

    inside: InsidePropagate

    def propagate(self, edge_index: Any, **kwargs: Any) -> Tensor:
        return self.inside.mix(self, super().propagate, edge_index, kwargs)

    def _orig_propagate(self, edge_index: Any, **kwargs: Any) -> Tensor:
        return self.inside.mix(self, super()._orig_propagate, edge_index, kwargs)

    def _jinja_propagate(self, edge_index: Any, **kwargs: Any) -> Tensor:
        return self.inside.mix(self, super()._jinja_propagate, edge_index, kwargs)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Builds torch-geometric's templates as the plain class does."""
        plain = object.__new__(self.plain)
        plain.__dict__ = self.__dict__
        plain._set_jittable_templates(raise_on_error)


def _forget_product(conv: nn.Module) -> None:
    """Clears the product of M and V that SGConv and SSGConv keep with ``cached=True``."""
    for name in ("_cached_x", "_cached_h"):
        if hasattr(conv, name):
            setattr(conv, name, None)


def swap(conv: nn.Module, kind: type[nn.Module]) -> None:
    """Replaces the class of a convolution, and its own attribute ``propagate`` if it has one."""
    held = vars(conv).pop("propagate", None)
    for variant in ("_orig_propagate", "_jinja_propagate"):
        if held is not None and held.__func__ is getattr(type(conv), variant):
            conv.propagate = getattr(kind, variant).__get__(conv)
    conv.__class__ = kind


def _drawn(t: Tensor) -> Tensor:
    """Returns fixed numbers from -1.2 to 1.2 in the shape of t."""
    return torch.rand(t.shape, generator=torch.Generator().manual_seed(0)).mul(2.4).sub(1.2).to(t)


def _even_channels(t: Tensor) -> Tensor:
    """Returns fixed numbers in the even channels, and 0 in the others."""
    kept = _drawn(t)
    kept[..., 1::2] = 0
    return kept


def _device(kwargs: Mapping[str, Any]) -> torch.device:
    """Returns the device of the arguments of ``propagate``."""
    values = (value for of in kwargs.values() for value in (of if isinstance(of, tuple) else [of]))
    return next((v.device for v in values if isinstance(v, Tensor)), torch.device("cpu"))


def _filled(kwargs: Mapping[str, Any], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Returns the values among the arguments after ``change``."""
    return {
        name: tuple(None if t is None else change(t) for t in value)
        if isinstance(value, tuple)
        else change(value)
        for name, value in kwargs.items()
        if name in VALUES
    }


def _values(conv: nn.Module, kwargs: Mapping[str, Any], mixed: Tensor) -> Tensor:
    """Returns the values V among the arguments of ``propagate``."""
    found = next((kwargs[name] for name in VALUES if name in kwargs), None)
    v = found[0] if isinstance(found, tuple) else found
    if not isinstance(v, Tensor):
        raise InputError(
            f"model: {type(conv).__name__} propagates no node features of the names "
            f"{', '.join(VALUES)}; choose an aggregator that acts after the convolution"
        )
    if v.shape != mixed.shape:
        raise InputError(
            f"model: {type(conv).__name__} turns values {tuple(v.shape)} into "
            f"{tuple(mixed.shape)}; inside, aggregators need a mixing that keeps the number of "
            "nodes (no bipartite graph) and of channels; choose one that acts after the convolution"
        )
    return v
