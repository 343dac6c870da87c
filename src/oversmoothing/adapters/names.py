"""What the words of a user mean: names of aggregators, and patterns of module names."""

import re
import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, getmodule, signature
from itertools import pairwise
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from torch import nn

import oversmoothing.aggregators
from oversmoothing.adapters.blocks import readable, tokens_first
from oversmoothing.adapters.calls import Current
from oversmoothing.adapters.convolutions import AfterConvolution
from oversmoothing.adapters.multihead import unnested
from oversmoothing.adapters.prefix import parents_of
from oversmoothing.adapters.pyg import output_channels
from oversmoothing.adapters.site import AfterModule, Placed, channels
from oversmoothing.adapters.sites import Factory, Sites, require_aggregator
from oversmoothing.aggregators.base import SIZES, Aggregator, Context
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError, closest, meant

VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def factories(
    given: str | Factory | Sequence[str | Factory], options: dict[str, Any]
) -> list[Factory]:
    """Returns factories for the aggregators that a user gives by name, class or function.

    Raises:
        InputError: a name or an option is unknown, an option is missing, or an entry is neither a
            name nor a class of aggregators nor a function.
    """
    if isinstance(given, list | tuple):
        return _of_several(given, options)
    if isinstance(given, partial) and not given.args and not given.keywords.keys() & {*SIZES}:
        return factories(given.func, {**given.keywords, **options})
    factory = _named(given) if isinstance(given, str) else given
    if factory is NoAggregator:
        raise InputError(
            "aggregator: none changes nothing; leave the call out, or take aggregators out with "
            "oversmoothing.remove"
        )
    if isinstance(factory, nn.Module):
        name = type(factory).__name__
        raise InputError(
            f"aggregator: got an instance of {name}; give the class {name}, and options as keywords"
        )
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError) as error:  # not callable, or implemented in C
        got = f"expected a name, a class or a function, got {given!r}"
        raise InputError(f"aggregator: {got}") from error
    if isinstance(factory, type):
        require_aggregator(factory)
    _require_options(factory, parameters, options)
    return [partial(factory, **options)] if options else [factory]


def _of_several(given: Sequence[str | Factory], options: dict[str, Any]) -> list[Factory]:
    if not given:
        raise InputError("aggregator: got an empty list; name at least one aggregator")
    try:
        found = [factory for one in given for factory in factories(one, options)]
    except InputError as error:
        alone = "; options of one method in a list: functools.partial(osm.Residual, interval=2)"
        raise InputError(f"{error}{alone * bool(options)}") from error
    if twice := [one for one, other in pairwise(found) if _call(one) == _call(other)]:
        raise InputError(
            f"aggregator: the list names {_name(twice[0])} twice in a row with the same options; "
            "leave one out, or change its options"
        )
    return found


def _call(factory: Factory) -> tuple[Any, ...]:
    """Returns a class or function and its options, which may be of any type, as text."""
    options = getattr(factory, "keywords", {})
    return (
        getattr(factory, "func", factory),
        getattr(factory, "args", ()),
        repr(sorted(options.items())),
    )


def _require_options(
    factory: Factory, parameters: Mapping[str, Parameter], options: dict[str, Any]
) -> None:
    known = {n: p for n, p in parameters.items() if n not in SIZES}
    for name in options:
        if name not in known:
            raise InputError(f"{name}: no option of {_name(factory)}; {meant(name, known)}")
    for name, parameter in known.items():
        required = parameter.default is parameter.empty and parameter.kind not in VARIABLE
        if required and name not in options:
            raise InputError(f"{name}: {_name(factory)} needs this option; add {name}=…")


def _name(factory: Factory) -> str:
    return getattr(getattr(factory, "func", factory), "__name__", "the aggregator")


def _named(name: str) -> type[Aggregator]:
    every = known()
    if name not in every:
        plain = re.sub(r"\W+", "_", name.lower())
        # A preset of train.py, such as contranorm_vit, begins with its method.
        starts = [other for other in every if plain.startswith(f"{other}_")]
        likely = max([*starts, *_described_as(plain, every)], key=len, default=name)
        way = f"{meant(likely, every)} (give your method as a class)"
        raise InputError(f"aggregator: no aggregator {name!r}; {way}")
    return every[name]


def _described_as(name: str, every: Mapping[str, type[Aggregator]]) -> list[str]:
    """Returns the aggregators in whose description a name such as GCNII stands."""
    found = []
    for own, kind in every.items():
        title = (getmodule(kind).__doc__ or "").split("\n")[0]
        names = re.findall(r"\w*[A-Z]\w*[A-Z]\w*", f"{title} {kind.__doc__}")
        found += [own] * (name in map(str.lower, names))
    return found


@cache
def known() -> dict[str, type[Aggregator]]:
    """Returns all aggregator classes by name.

    The name is that of the module, or the class in snake case where a module defines several.
    """
    found = {}
    for info in iter_modules(oversmoothing.aggregators.__path__, "oversmoothing.aggregators."):
        module = import_module(info.name)
        own = [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Aggregator)
            if kind.__module__ == info.name != "oversmoothing.aggregators.base"
            if "forward" in vars(kind)
        ]
        alone = len(own) == 1
        for kind in own:
            name = re.sub("(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
            found[info.name.rpartition(".")[2] if alone else name] = kind
    return found


def matching(model: nn.Module, pattern: str | None) -> list[str]:
    """Returns the names of the modules that match a pattern such as ``layers.*.linear2``.

    Raises:
        InputError: the pattern is no string, or empty.
    """
    if not isinstance(pattern, str | None) or pattern == "":
        raise InputError(
            f"where: expected a place or one pattern of module names, got {pattern!r}; call apply "
            "once for each pattern"
        )
    names = {readable(name): name for name, _ in model.named_modules() if name}
    return [own for name, own in names.items() if pattern is not None and fits(name, pattern)]


def fits(name: str, pattern: str) -> bool:
    """Whether the name of a module matches a pattern, in which a ``*`` matches no dot."""
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def require_match(model: nn.Module, where: str | None) -> None:
    """Checks that no pattern is given, since it matches no module."""
    if where is not None:
        names = {readable(name) for name, _ in model.named_modules() if name}
        raise InputError(f"where: {where!r} matches no module; {meant(where, names)}")


def require_all(blocks: str | Sequence[int], names: Sequence[str]) -> None:
    """Checks that ``blocks`` is left out if ``where`` is a pattern."""
    if not isinstance(blocks, str) or blocks != "all":
        raise InputError(
            f"blocks: where= is a pattern of module names, which matches {names[0]}; leave blocks "
            f"out, and put the numbers of blocks into the pattern (layers.[01].linear), got "
            f"{blocks!r}"
        )


def warn_of_place(library: ModuleType | None, where: str | None) -> None:
    """Warns that the name of a module is almost that of a place, such as ``norm`` of ``norms``."""
    place = closest(where or "", {place: place for place in getattr(library, "PLACES", ())}, 0.85)
    if place is not None:
        warnings.warn(
            f"where={where!r} is the module of this name; {place!r} is a place in every block",
            stacklevel=4,
        )


def place_after(
    model: nn.Module,
    names: Sequence[str],
    factories: Sequence[Factory],
    current: Current,
    layout: str | None,
) -> list[Placed]:
    """Builds sites after the modules of these names.

    Args:
        layout: of the modules' outputs; None: tokens (B, N, C) or nodes (N, C).

    Raises:
        InputError: an aggregator does not act after the mixing, the tokens at a module are
            (N, B, C), or a module is not called or computes nothing.
    """
    placed: dict[nn.Module, Placed] = {}
    for name in names:
        if layout is None:
            _require_batch_first(model, name)
        _require_called(model, name)
        module = named = model.get_submodule(name)
        _require_forward(name, module)
        while isinstance(module, nn.Sequential):  # a site as its child would be called as a layer
            module = module[-1]
        convolves = hasattr(module, "propagate")
        dim = output_channels(module, factories) if convolves else channels(named, factories)
        sites = Sites(factories, dim, f"a place after {name}", ("after",))
        kind = AfterConvolution if convolves else AfterModule
        context = Context(layer=1 + len(placed))
        site = kind(sites.build("after", dim), context, current, layout, dim)
        if site.reads_inputs and module is not named:
            raise InputError(
                f"where: {name} is a Sequential, whose input a skip connection cannot see; put it "
                "into a module with a forward"
            )
        placed[module] = Placed(module, site)
    return [*placed.values(), *unnested(model, placed.values())]


def _require_forward(name: str, module: nn.Module) -> None:
    lists = isinstance(module, nn.ModuleList | nn.ModuleDict)
    if lists or (isinstance(module, nn.Sequential) and not len(module)):
        what, way = ("a list of modules", f"{name}.*") if lists else ("empty", "another place")
        raise InputError(f"where: {name} is {what} and computes nothing; choose {way}")


def _require_called(model: nn.Module, name: str) -> None:
    """Checks that the module is called; torch's attention reads only its child's weights."""
    parent = name.rpartition(".")[0]
    if name and isinstance(model.get_submodule(parent), nn.MultiheadAttention):
        raise InputError(
            f"where: {name} is never called, since MultiheadAttention reads only its weights; "
            f"choose {parent}"
        )


def _require_batch_first(model: nn.Module, name: str) -> None:
    """Checks that no attention or recurrent layer around a module expects tokens (N, B, C)."""
    parents = parents_of(model, name).values()
    if first := [
        type(m).__name__ for m in (*parents, model.get_submodule(name)) if tokens_first(m)
    ]:
        raise InputError(f"where: tokens at {name} are (N, B, C) in {first[0]}; give layout=NBC")
    near = [child for module in parents for child in module.children()]
    for module in (*near, *model.get_submodule(name).modules()):
        if getattr(module, "batch_first", True) is False:
            raise InputError(
                f"where: tokens at {name} are (N, B, C), since {type(module).__name__} there has "
                "batch_first=False; give layout=NBC if the outputs are tokens of this form"
            )
