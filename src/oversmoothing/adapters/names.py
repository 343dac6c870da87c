"""Converts what a user gives as aggregators to factories."""

from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module
from inspect import Parameter, signature
from pkgutil import iter_modules
from typing import Any

from torch import nn

import oversmoothing.aggregators
from oversmoothing.adapters.sites import Factory
from oversmoothing.aggregators.base import Aggregator
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError, meant

VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def factories(
    given: str | Factory | Sequence[str | Factory], options: dict[str, Any]
) -> list[Factory]:
    """Returns factories for the aggregators that a user gives by name, class or function.

    Raises:
        InputError: a name or an option is unknown, or an option is missing.
    """
    if isinstance(given, list | tuple):
        if not given:
            raise InputError("aggregator: got an empty list; name at least one aggregator")
        return [factory for one in given for factory in factories(one, options)]
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
    if isinstance(factory, type) and not issubclass(factory, Aggregator):
        raise InputError(
            f"aggregator: {factory.__name__} derives from none of Inside, After and Instead; "
            "derive it from one of these in oversmoothing.aggregators.base"
        )
    known = {n: p for n, p in parameters.items() if n != "dim"}
    for name in options:
        if name not in known:
            raise InputError(f"{name}: no option of {_name(factory)}; {meant(name, known)}")
    for name, parameter in known.items():
        required = parameter.default is parameter.empty and parameter.kind not in VARIABLE
        if required and name not in options:
            raise InputError(f"{name}: {_name(factory)} needs this option; add {name}=…")
    return [partial(factory, **options)] if options else [factory]


def _name(factory: Factory) -> str:
    return getattr(getattr(factory, "func", factory), "__name__", "the aggregator")


def _named(name: str) -> type[Aggregator]:
    """Returns the aggregator class of a name."""
    known = _known()
    if name not in known:
        # A preset of train.py, such as contranorm_vit, begins with its method.
        starts = (other for other in known if name.startswith(f"{other}_"))
        likely = max(starts, key=len, default=name)
        raise InputError(
            f"aggregator: no aggregator {name!r}; {meant(likely, known)} (give a method "
            "of your own as a class)"
        )
    return known[name]


@cache
def _known() -> dict[str, type[Aggregator]]:
    """Returns all aggregator classes by the names of the modules that define them."""
    found = {}
    for info in iter_modules(oversmoothing.aggregators.__path__, "oversmoothing.aggregators."):
        module = import_module(info.name)
        own = [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, Aggregator)
            if kind.__module__ == info.name and "forward" in vars(kind)
        ]
        if len(own) == 1:
            found[info.name.rpartition(".")[2]] = own[0]
    return found
