"""Objects of a config: building them, and names and types of their arguments."""

import inspect
import math
import types
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from oversmoothing.errors import InputError, meant

Signature = tuple[dict[str, inspect.Parameter], dict[str, Any]]  # parameters, type hints

_NAMES = {
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    str: "a text",
    dict: "a mapping",
    list: "a list",
    type(None): "null",
}


def build(node: DictConfig, **arguments: Any) -> Any:
    """Builds the ``_target_`` of a node; raises its InputError, not Hydra's exception around it."""
    try:
        return instantiate(node, _convert_="all", **arguments)
    except InstantiationException as error:
        if isinstance(refused := error.__cause__, InputError):
            raise refused from None
        raise


def signature_problems(
    prefix: str,
    signature: Signature,
    values: dict[str, Any],
    given: tuple[str, ...] | None = (),
) -> list[str]:
    """Lists the arguments of a class or function that are unknown, missing or of a wrong type.

    Args:
        prefix: of the keys, such as ``trainer.``.
        signature: of the class or function, from ``signature``.
        values: arguments in the config.
        given: names of arguments that do not come from the config; None if they are unknown.

    Returns:
        One line for each mistake.
    """
    known, hints = signature
    open_ended = inspect.Parameter.VAR_KEYWORD in {p.kind for p in known.values()}
    own = [name for name in known if name not in (given or ())]
    problems = []
    for name, value in values.items():
        if name not in own and not open_ended:
            taken = "does not come from the config" if name in known else "no such key"
            problems.append(f"{prefix}{name}: {taken}; {meant(name, own)}")
        elif name in hints and not fits(value, hints[name]):
            expected = describe(hints[name])
            problems.append(f"{prefix}{name}: expected {expected}, got {_shown(value)}")
    if given is not None:
        missing = [name for name in own if is_required(known[name]) and name not in values]
        problems += [f"{prefix}{name}: missing; the YAML must name it" for name in missing]
    return problems


@lru_cache(maxsize=256)
def signature(target: Callable) -> Signature:
    """Returns the parameters and type hints of a class or function, as far as they are readable."""
    try:
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError):
        hints = {}
    try:
        known = dict(inspect.signature(target).parameters)
    except ValueError:  # written in C, with unknown parameters
        known = {"any": inspect.Parameter("any", inspect.Parameter.VAR_KEYWORD)}
    listed = {k: own.annotation for k, own in known.items() if own.annotation is not own.empty}
    return known, hints | {k: hint for k, hint in listed.items() if not isinstance(hint, str)}


def is_required(parameter: inspect.Parameter) -> bool:
    variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    return parameter.default is parameter.empty and not variadic


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has a type; types that YAML cannot hold are not checked."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, dict) and "_target_" in value:
        return True
    if origin is Literal:
        return any(value == known and type(value) is type(known) for known in arguments)
    if origin in (typing.Union, types.UnionType):
        checked = [argument for argument in arguments if is_checked(argument)]
        return any(fits(value, argument) for argument in checked or arguments)
    if origin in (list, tuple):
        inner = arguments[0] if arguments else Any
        return isinstance(value, list) and all(fits(item, inner) for item in value)
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint) if is_checked(hint) else True


def is_checked(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return origin in (*_NAMES, tuple, Literal)


def describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(str(argument) for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(describe(a) for a in arguments if is_checked(a))
    if origin in (list, tuple) and arguments:
        return f"a list [a,b,…], each {describe(arguments[0])}"
    return _NAMES.get(origin or hint, str(hint))


def _shown(value: Any) -> str:
    """Formats a value as in YAML files and on command lines."""
    if isinstance(value, list):
        return f"[{','.join(_shown(item) for item in value)}]"
    words = {None: "null", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else repr(value)
