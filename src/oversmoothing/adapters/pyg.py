"""Places for aggregators at the graph convolutions of torch-geometric.

Inside a convolution, they act where it calls ``propagate``. Hooks on ``propagate`` cannot be used,
since torch-geometric skips them under ``torch.compile``. After it, they act on its output.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from inspect import signature
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oversmoothing.adapters.attention import Swapped, plain_class, subclass
from oversmoothing.adapters.blocks import Asked, convolves
from oversmoothing.adapters.calls import Capture, Current, Graphs
from oversmoothing.adapters.convolutions import (
    BATCH,
    AfterConvolution,
    BeforeConvolution,
    EdgesOfConvolution,
    GraphOfModel,
    MessagesOfConvolution,
    entries_of,
    forget_product,
    require_lasting,
    with_edges,
)
from oversmoothing.adapters.site import BeforeModule, Placed, Site, channels, width
from oversmoothing.adapters.sites import Factory, Sites, kind_of
from oversmoothing.aggregators.base import make, wants_dim
from oversmoothing.errors import InputError

WIDTHS = ("in_channels", "channels", "in_features", "out_channels")  # attributes: channels of x
READS_MASKS = True  # graphs, from the arguments of the model
ADDS_INPUTS = False  # whether blocks add their input to their output
OFFERED = ("inside", "after", "before", "edges", "messages", "graph")
VALUES = ("x", "value", "v")  # names of the values that convolutions propagate


class InsidePropagate(Site):
    """Acts on the product of M and V that ``propagate`` computes.

    ``Context.row_sum`` has the shape of the product, since gates may weight channels differently.
    """

    name = "inside"
    checked = False  # whether propagate is known to be a product

    def connect(self, module: nn.Module) -> None:
        forget_product(module)
        swap(module, subclass(type(module), Propagating))

    def detach(self, module: nn.Module) -> None:
        forget_product(module)
        swap(module, plain_class(type(module)))
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
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            raise InputError(
                "model: call it once before torch.compile or torch.func, to check its mixing"
            )
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
        with replayed(device, state):
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
    values = (value for of in kwargs.values() for value in (of if isinstance(of, tuple) else [of]))
    return next((v.device for v in values if isinstance(v, Tensor)), torch.device("cpu"))


def _filled(kwargs: Mapping[str, Any], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
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


def place(asked: Asked) -> list[Placed]:
    """Builds new sites for the convolutions.

    Aggregators of the site after act after every convolution except the last, whose output is often
    that of the model. They also act after the last one if a linear map reads it, or if the user
    names its block.

    Raises:
        InputError: ``where`` is given, or a block has no graph convolution.
    """
    model, choice, factories, where, current = asked
    if where is not None:
        raise InputError(
            f"where: at graph convolutions, leave it out, or give a pattern of module names, got "
            f"{where!r}"
        )
    placed: list[Placed] = []
    last, before = [*choice.blocks.values()][-1], []
    for name, block in choice.blocks.items():
        convolutions = [module for module in block.modules() if convolves(module)]
        if not convolutions:
            raise InputError(
                f"blocks: {name} ({type(block).__name__}) has no graph convolution; leave it out "
                "of blocks=, or give where= as a pattern of module names"
            )
        acts_after = choice.named or block is not choice.last or _has_head(model, convolutions[-1])
        for conv in convolutions:
            before.append(_width(conv))
            alike = before.count(before[-1]) if block is last else 0
            at = AtConvolution(type(model).__name__, current, acts_after, alike)
            placed += [Placed(conv, site) for site in _at(conv, factories, at)]
    if upsample := Sites(factories, 0, type(model).__name__, OFFERED).build("graph", 0):
        if choice.named:
            raise InputError(
                "blocks: half_hop changes the graph of the whole model; leave them out"
            )
        placed.append(Placed(model, GraphOfModel(upsample)))
    _number([place.site for place in placed if isinstance(place.site, AfterConvolution)])
    return placed if any(len(place.site) for place in placed) else []


def _has_head(model: nn.Module, conv: nn.Module) -> bool:
    """Whether a linear map that comes after the last convolution reads its channels."""
    found = [*model.modules()]
    after = found[found.index([*conv.modules()][-1]) + 1 :]
    sizes = [_width(module) for module in after if "Linear" in type(module).__name__]
    return keeps_channels(conv) and any(size and size % _out(conv) == 0 for size in sizes)


def _number(sites: list[AfterConvolution]) -> None:
    """Numbers the layers from 1: those with skip connections, and the others."""
    for joins in (True, False):
        alike = [site for site in sites if site.reads_inputs is joins]
        for layer, site in enumerate(alike, start=1):
            site.context = replace(site.context, layer=layer)


class AtConvolution(NamedTuple):
    """What the sites of a convolution know about it.

    Args:
        host: name of the model, for error messages.
        current: groups of tokens, for the new sites.
        acts_after: whether aggregators of the site after act on its output.
        alike: number of convolutions with as many input channels, itself included, if it combines
            their inputs; else 0.
    """

    host: str
    current: Current
    acts_after: bool
    alike: int


def _at(conv: nn.Module, factories: Sequence[Factory], at: AtConvolution) -> list[Site]:
    """Builds the sites of a convolution; skip connections only if it keeps the channels."""
    out, current = output_channels(conv, factories), at.current
    kinds = {factory: kind_of(factory, out) for factory in factories}
    adding = [f for f, kind in kinds.items() if kind.reads_inputs and kind.site == "after"]
    if adding and not keeps_channels(conv):
        factories = [factory for factory in factories if factory not in adding]
    sites = Sites(factories, out, at.host, OFFERED)
    found: list[Site] = []
    if sites.has("inside"):
        dim = mixed_channels(conv, sites.factories["inside"])
        inside = sites.build("inside", dim, heads=getattr(conv, "heads", 1))
        found.append(InsidePropagate(inside, current=current))
        require_lasting(conv, found[-1])
    if sites.has("after") and at.acts_after:
        found.append(AfterConvolution(sites.build("after", out), current=current, dim=out))
    if sites.has("before"):
        found.append(_before(conv, sites.factories["before"], at))
        require_lasting(conv, found[-1])
    if sites.has("edges"):
        found.append(EdgesOfConvolution(sites.build("edges", 0), current=current))
    if sites.has("messages"):
        found.append(MessagesOfConvolution(sites.build("messages", 0)))
    return found


def _before(conv: nn.Module, factories: Sequence[Factory], at: AtConvolution) -> Site:
    """Builds the site before a convolution, which notes its input; the last one combines them."""
    noting = [factory for factory in factories if kind_of(factory, 0).reads_inputs]
    acting = [factory for factory in factories if at.alike or factory not in noting]
    sizes = {"channels": _width(conv), "layers": at.alike}
    kind = BeforeConvolution if noting else BeforeModule
    return kind([make(factory, 0, **sizes) for factory in acting], current=at.current)


def keeps_channels(conv: nn.Module) -> bool:
    """Whether the output of a convolution has the channels of its input."""
    size = _width(conv)
    return bool(size) and _out(conv) == (size[-1] if isinstance(size, tuple) else size)


def readers(model: nn.Module, names: Iterable[str], current: Current) -> list[Placed]:
    """Returns the hook that reads the graph of every node from the model's arguments."""
    return [Placed(model, Capture(current, model, _graphs))]


def _graphs(given: dict[str, Any]) -> Graphs | None:
    """Reads the graph of every node from any argument that is a ``Data``, or named in ``BATCH``."""
    for name, value in given.items():
        if name in BATCH or hasattr(value, "edge_index"):
            batch = getattr(value, "batch", value)
            if isinstance(batch, Tensor) and batch.dim() == 1 and not batch.is_floating_point():
                return Graphs(batch)
    return None


def mixes(edges: Tensor) -> bool:
    """Whether any row has entries in two columns."""
    rows, columns = edges
    if not rows.numel():
        return False
    one = columns.new_zeros(int(rows.max()) + 1)
    one[rows] = columns  # any one column of each row
    return bool((one[rows] != columns).any())


def mixed_channels(conv: nn.Module, factories: Sequence[Factory], size: int | None = None) -> int:
    """Finds the number of channels that a convolution mixes, by a call on two nodes.

    It is 0 if no factory asks for it.

    Args:
        conv: the convolution.
        factories: of aggregators inside it.
        size: channels of its input; None: taken from its attributes.

    Raises:
        InputError: the number cannot be found.
    """
    if not any(map(wants_dim, factories)):
        return 0
    found: set[int] = set()
    probe = deepcopy(conv).eval()
    probe.register_propagate_forward_hook(lambda *call: found.add(call[-1].shape[-1]))
    if _called(probe, size) is not None and len(found) == 1:
        return found.pop()
    raise InputError(
        f"aggregator: cannot tell how many channels {type(conv).__name__} mixes; give a factory "
        "that knows, for example lambda: Method(dim=64)"
    )


def output_channels(conv: nn.Module, factories: Sequence[Factory]) -> int:
    """Returns the number of channels of a convolution's output; 0 if no factory asks for it.

    Raises:
        InputError: the number cannot be found.
    """
    if not any(map(wants_dim, factories)):
        return 0
    return _out(conv) or channels(conv, factories)


def _out(conv: nn.Module) -> int:
    """Finds the number of channels of a convolution's output, by a call on two nodes.

    If the call fails, the number is read from attributes; 0: they do not tell it.
    """
    out = _called(deepcopy(conv).eval())
    return out.shape[-1] if isinstance(out, Tensor) else width(conv)


def _called(probe: nn.Module, size: int | None = None) -> Any:
    """Returns the output of a convolution for two nodes; None if an argument is missing."""
    try:
        if any(parameter.is_meta for parameter in probe.parameters()):
            probe = probe.to_empty(device="cpu")  # on meta, self-loops cannot be counted
        with torch.random.fork_rng(devices=[]):  # the call initialises lazy parameters
            return _call(probe, own) if (own := size or _width(probe)) else None
    except Exception:  # a convolution may raise any error
        return None


def _width(conv: nn.Module) -> Any:
    """Returns the channels of a convolution's input (two in a bipartite graph); 0: unknown.

    A network of both ends of an edge, as in EdgeConv, takes twice as many.
    """
    of_parts = [getattr(part, name, None) for part in conv.modules() for name in WIDTHS]
    known = [size for size in of_parts if isinstance(size, int | tuple)]
    size = known[0] if known else 0
    if size in of_parts[: len(WIDTHS)] or not isinstance(size, int) or size < 2:
        return size
    probe = deepcopy(conv).eval()
    ends = _called(probe, size) is None and _called(probe, size // 2) is not None
    return size // 2 if ends else size


@torch.no_grad()
def _call(conv: nn.Module, size: int | tuple[int, ...]) -> Any:
    """Calls a convolution on two nodes that are joined by an edge."""
    like = next(conv.parameters(), torch.empty(0))
    pair = tuple(like.new_zeros(2, own) for own in (size if isinstance(size, tuple) else [size]))
    x = pair if isinstance(size, tuple) else pair[0]
    edges = torch.tensor([[0, 1], [1, 0]], device=like.device)
    given = {"x": x, "x_0": x, "edge_index": edges}
    if isinstance(of_edges := getattr(conv, "edge_dim", None), int):
        given["edge_attr"] = like.new_zeros(2, of_edges)
    takes = signature(conv.forward).parameters
    return conv.forward(**{name: value for name, value in given.items() if name in takes})


def random_state(module: nn.Module, device: torch.device) -> Tensor | None:
    """Returns the state of the generator for a module's dropout; None if it draws no numbers."""
    if not module.training or torch.compiler.is_compiling():
        return None
    return _generator(device).get_rng_state()


@contextlib.contextmanager
def replayed(device: torch.device, state: Tensor | None) -> Iterator[None]:
    """Replays the random numbers drawn after ``state``, then restores the generator."""
    if state is None:
        yield
        return
    generator = _generator(device)
    after = generator.get_rng_state()
    generator.set_rng_state(state)
    try:
        yield
    finally:
        generator.set_rng_state(after)


def _generator(device: torch.device) -> ModuleType:
    """Returns the module with a device's generator: ``torch``, ``torch.cuda``, ``torch.mps``."""
    own = torch.get_device_module(device)
    return own if hasattr(own, "get_rng_state") and device.type != "cpu" else torch
