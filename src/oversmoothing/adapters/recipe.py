"""Recipes: the calls of ``apply`` that a model has seen, as JSON, so that they can be made again.

Every call is noted at its model, and in the configuration of a model of transformers, which
``save_pretrained`` writes to config.json.
"""

import json
from collections.abc import Sequence
from functools import partial
from inspect import signature
from typing import Any

from torch import nn

from oversmoothing.adapters.names import known
from oversmoothing.adapters.site import placed_in
from oversmoothing.adapters.sites import Factory
from oversmoothing.errors import InputError

NOTE = "oversmoothing"  # attribute of a model and of its configuration
Recipe = list[dict[str, Any]]


def recipe(model: nn.Module) -> Recipe:
    """Returns how to put the methods of a model into another one of its kind, in types of JSON.

    Args:
        model: with methods; several calls of ``apply``, also to parts of the model, are all noted.

    Returns:
        One entry for each call: the methods with their options, and the arguments of ``apply``. It
        is empty if the model has no methods.

    Raises:
        InputError: a method is a lambda, or an option is not of a type of JSON.
    """
    found: Recipe = []
    for name, module in getattr(model, "_orig_mod", model).named_modules():  # of torch.compile
        for call in vars(module).get(NOTE, []):
            if "unclear" in call:
                raise InputError(f"recipe: {call['unclear']}")
            found.append({"module": name, **call} if name else dict(call))
    return found


def note(model: nn.Module, methods: Sequence[Factory], options: dict[str, Any]) -> None:
    """Notes a call of ``apply`` at a model and in its configuration."""
    calls = vars(model).setdefault(NOTE, [])
    try:
        call = {"methods": [_described(method) for method in methods], **options}
        calls.append(json.loads(json.dumps(call, default=_listed)))
    except (TypeError, ValueError, InputError) as error:
        calls.append({"unclear": f"{error}; give classes, and options as numbers and words"})
    if _is_configured(model) and not any("unclear" in call for call in calls):
        setattr(model.config, NOTE, calls)


def forget(model: nn.Module) -> None:
    """Deletes the notes at a model, its parts and their configurations."""
    for module in model.modules():
        vars(module).pop(NOTE, None)
        if _is_configured(module):
            vars(module.config).pop(NOTE, None)


def noted(model: nn.Module) -> Recipe | None:
    """Returns the recipe in a model's configuration; None if there is none."""
    return getattr(model.config, NOTE, None) if _is_configured(model) else None


def lost(model: nn.Module) -> str | None:
    """Returns a sentence if a model was loaded without the methods in its configuration."""
    methods = [method["name"] for call in noted(model) or [] for method in call["methods"]]
    if not methods or placed_in(model):
        return None
    return (
        f"the configuration of this {type(model).__name__} names {', '.join(methods)}, which it "
        "lacks; oversmoothing.restore(model) puts them in"
    )


def _is_configured(module: nn.Module) -> bool:
    """Whether a module is a model of transformers."""
    return hasattr(module, "save_pretrained") and hasattr(module.config, "to_diff_dict")


def _described(factory: Factory) -> dict[str, Any]:
    """Returns the name of a method, and its options."""
    options: dict[str, Any] = {}
    while isinstance(factory, partial):
        given = signature(factory.func).bind_partial(*factory.args).arguments
        options = given | factory.keywords | options
        factory = factory.func
    names = {kind: name for name, kind in known().items()}
    name = names.get(factory, factory.__name__)
    if name == "<lambda>":
        raise InputError("a lambda has no name")
    return {"name": name, **options}


def _listed(value: Any) -> Any:
    """Converts arrays of numbers, such as indices of blocks."""
    if hasattr(value, "tolist") and not hasattr(value, "requires_grad"):
        return value.tolist()
    if isinstance(value, range):
        return [*value]
    raise TypeError(f"{type(value).__name__} is no type of JSON")
