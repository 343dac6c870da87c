"""Places for aggregators at the graph convolutions of torch-geometric.

Inside a convolution, they act where it calls ``propagate``. Hooks on ``propagate`` would not do:
torch-geometric skips them under ``torch.compile``. Behind a convolution, they act on its output.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.attention import Swapped, subclass
from oversmoothing.adapters.channels import channels
from oversmoothing.adapters.choice import Choice
from oversmoothing.adapters.current import Current, capture, graphs
from oversmoothing.adapters.replay import random_state, replayed
from oversmoothing.adapters.site import AfterModule, Placed, Site
from oversmoothing.adapters.sites import Factory, Sites
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

VALUES = ("x", "value", "v")  # names of the values that convolutions propagate


class InsidePropagate(Site):
    """Acts on the product of M and V that ``propagate`` computes."""

    name = "inside"
    checked = False  # whether the product has been found to be one

    def connect(self, module: nn.Module) -> None:
        swap(module, subclass(type(module), Propagating))

    def detach(self, module: nn.Module) -> None:
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
            with replayed(device, state):  # the same dropout of edges as above
                sums = propagate(edges, **kwargs | _filled(kwargs, torch.ones_like)).detach()
            context = replace(context, row_sum=sums.movedim(conv.node_dim, -2)[..., :1])
        context = _with_edges(context, self, conv, edges, mixed.shape[conv.node_dim])
        return self.act(*tensors, context=context).movedim(-2, conv.node_dim).contiguous()

    @torch.no_grad()
    def _require_linear(
        self, conv: nn.Module, propagate: Callable, edges: Any, kwargs: dict
    ) -> None:
        """Checks at the first call that ``propagate`` is a product of a matrix and the values."""
        if self.checked or torch.compiler.is_compiling():
            return
        device, several = _device(kwargs), []
        state = random_state(conv, device)
        for change in (torch.clone, torch.cos, lambda t: t + t.cos()):
            with replayed(device, state):
                several.append(propagate(edges, **kwargs | _filled(kwargs, change)).float())
        first, second, both = several
        noise = 1e-2 * float(both.abs().amax()) if both.numel() else 0.0  # of half precision
        self.checked = torch.allclose(first + second, both, rtol=1e-2, atol=noise, equal_nan=True)
        if not self.checked:
            raise InputError(
                f"model: {type(conv).__name__} does more than mix the values linearly (a maximum, "
                "a network on messages, an update()), so aggregators cannot act inside; choose one "
                "that acts after the convolution"
            )


class Propagating(Swapped):
    """A convolution with aggregators inside; every variant of ``propagate`` has them."""

    inside: InsidePropagate

    def propagate(self, edge_index: Any, **kwargs: Any) -> Tensor:
        return self.inside.mix(self, super().propagate, edge_index, kwargs)

    def _orig_propagate(self, edge_index: Any, **kwargs: Any) -> Tensor:
        return self.inside.mix(self, super()._orig_propagate, edge_index, kwargs)

    def _jinja_propagate(self, edge_index: Any, **kwargs: Any) -> Tensor:
        return self.inside.mix(self, super()._jinja_propagate, edge_index, kwargs)

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Leaves the templates of torch-geometric to the plain class."""
        plain = object.__new__(self.plain)
        plain.__dict__ = self.__dict__
        plain._set_jittable_templates(raise_on_error)


def swap(conv: nn.Module, kind: type[nn.Module]) -> None:
    """Replaces the class of a convolution, and a variant of ``propagate`` that it has chosen."""
    held = vars(conv).pop("propagate", None)
    for variant in ("_orig_propagate", "_jinja_propagate"):
        if held is not None and held.__func__ is getattr(type(conv), variant):
            conv.propagate = getattr(kind, variant).__get__(conv)
    conv.__class__ = kind


class AfterConvolution(AfterModule):
    """Acts on the output of a convolution; knows its edges."""

    def connect(self, module: nn.Module) -> None:
        super().connect(module)
        names = list(signature(module.forward).parameters)
        self.position = names.index("edge_index") if "edge_index" in names else len(names)

    def of_call(self, module: nn.Module, args: tuple, kwargs: dict, num_tokens: int) -> Context:
        given = args[self.position] if self.position < len(args) else None
        edges = kwargs.get("edge_index", given)
        return _with_edges(self.context, self, module, edges, num_tokens)


def place(
    model: nn.Module,
    choice: Choice,
    factories: Sequence[Factory],
    where: str | None,
    current: Current,
) -> list[Placed]:
    """Builds new sites for the convolutions.

    Aggregators of the site after act after every convolution. The last one, whose output is often
    that of the model, has none unless the user names its block.

    Raises:
        InputError: ``where`` is given.
    """
    if where is not None:
        raise InputError(
            f"where: at graph convolutions, leave it out, or give a pattern of module names, got "
            f"{where!r}"
        )
    placed: list[Placed] = []
    for name, block in choice.blocks.items():
        convolutions = [module for module in block.modules() if hasattr(module, "propagate")]
        if not convolutions:
            raise InputError(
                f"blocks: {name} ({type(block).__name__}) has no graph convolution; leave it out "
                "of blocks=, or give where= as a pattern of module names"
            )
        for conv in convolutions:
            dim = channels(conv, factories)
            sites = Sites(factories, dim, type(model).__name__, ("inside", "after"))
            if sites.has("inside"):
                site = InsidePropagate(sites.build("inside", dim), current=current)
                placed.append(Placed(conv, site))
            if sites.has("after") and (choice.named or block is not choice.last):
                site = AfterConvolution(sites.build("after", dim), current=current)
                placed.append(Placed(conv, site))
    return placed


def require(model: nn.Module, parts: Iterable[nn.Module], factories: Sequence[Factory]) -> None:
    """Checks nothing: nodes are not causal."""


def readers(model: nn.Module, names: Iterable[str], current: Current) -> list[Placed]:
    """Returns what reads the graph of every node from an argument of the model."""
    found = (capture(model, current, graphs, name) for name in ("batch", "data"))
    return [Placed(model, reader) for reader in found if reader][:1]


def _device(kwargs: Mapping[str, Any]) -> torch.device:
    """Returns the device of the arguments of ``propagate``."""
    values = (value for of in kwargs.values() for value in (of if isinstance(of, tuple) else [of]))
    return next((v.device for v in values if isinstance(v, Tensor)), torch.device("cpu"))


def _filled(kwargs: Mapping[str, Any], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Returns the values among the arguments, changed."""
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


def _with_edges(
    context: Context, site: Site, conv: nn.Module, edge_index: Any, num_nodes: int
) -> Context:
    """Adds row and column of every entry of M, self-loops included, if an aggregator reads them."""
    if not any(aggregator.reads_edges for aggregator in site):
        return context
    if edge_index is None:
        raise InputError(
            f"model: {type(conv).__name__} has no argument edge_index, which the aggregator reads; "
            "choose another aggregator"
        )
    if hasattr(edge_index, "coo"):  # a SparseTensor
        edges = torch.stack(edge_index.coo()[:2])
    elif edge_index.layout != torch.strided:
        edges = edge_index.to_sparse_coo().coalesce().indices()
    else:
        edges = edge_index.flip(0) if conv.flow == "source_to_target" else edge_index
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    return replace(context, edges=torch.cat([edges, loops], dim=1), num_nodes=num_nodes)
