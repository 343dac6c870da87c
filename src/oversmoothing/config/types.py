"""Names and types of a config node, held against the signature that will take it."""

import inspect
import math
import types
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from oversmoothing.config.names import meant

_NAMES = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "a text",
    dict: "a mapping",
    list: "a list",
    type(None): "null",
}


def argument_problems(
    prefix: str, target: Callable, values: dict[str, Any], given: tuple[str, ...] | None = ()
) -> list[str]:
    """One line for every argument that is unknown, missing, or of another type.

    Args:
        prefix: of the keys (``trainer.``).
        target: class or function.
        values: its arguments as the config has them.
        given: arguments that it gets elsewhere; None where that is not known.
    """
    known, hints = _signature(target)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
    own = [name for name in known if name not in (given or ())]
    problems = []
    for name, value in values.items():
        if name not in own and not open_ended:
            taken = "is set elsewhere, not by a key" if name in known else "no such key"
            problems.append(f"{prefix}{name}: {taken}; {meant(name, own)}")
        elif name in hints and not _fits(value, hints[name]):
            expected = _describe(hints[name])
            problems.append(f"{prefix}{name}: expected {expected}, got {_shown(value)}")
    if given is not None:
        missing = [name for name in own if _required(known[name]) and name not in values]
        problems += [f"{prefix}{name}: missing; the YAML must name it" for name in missing]
    return problems


@lru_cache(maxsize=256)
def _signature(target: Callable) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
    """Parameters and type hints of what a call takes, as far as they can be had."""
    try:
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError):
        hints = {}
    try:
        return dict(inspect.signature(target).parameters), hints
    except ValueError:  # written in C: takes whatever it takes
        return {"any": inspect.Parameter("any", inspect.Parameter.VAR_KEYWORD)}, hints


def _required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    return parameter.default is parameter.empty and not variadic


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; of types that a YAML cannot hold, everything is."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, dict) and "_target_" in value:
        return True
    if origin is Literal:
        return any(value == known and type(value) is type(known) for known in arguments)
    if origin in (typing.Union, types.UnionType):
        checked = [argument for argument in arguments if _is_checked(argument)]
        return any(_fits(value, argument) for argument in checked or arguments)
    if origin in (list, tuple):
        inner = arguments[0] if arguments else Any
        return isinstance(value, list) and all(_fits(item, inner) for item in value)
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint) if _is_checked(hint) else True


def _is_checked(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return origin in (*_NAMES, tuple, Literal)


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(str(argument) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(a) for a in arguments if _is_checked(a))
    if origin in (list, tuple) and arguments:
        return f"a list [a,b,…], each {_describe(arguments[0])}"
    return _NAMES.get(origin or hint, str(hint))


def _shown(value: Any) -> str:
    """As a YAML or a command line has it."""
    if isinstance(value, list):
        return f"[{','.join(_shown(item) for item in value)}]"
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else repr(value)
