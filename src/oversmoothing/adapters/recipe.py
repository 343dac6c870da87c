"""Recipes: the calls of ``apply`` on a model as types of JSON, so that they can be repeated.

Every call is noted at its model, and in the configuration of a model of transformers, which
``save_pretrained`` writes to config.json.
"""

import json
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from oversmoothing.adapters.blocks import uncompiled
from oversmoothing.adapters.names import known
from oversmoothing.adapters.site import Site, placed_in
from oversmoothing.adapters.sites import Factory
from oversmoothing.aggregators.base import SIZES
from oversmoothing.errors import InputError, described

NOTE = "oversmoothing"  # attribute of a model and of its configuration
KEYS = {"module", "part", "methods", "blocks", "where", "layout", "causal"}  # of a call
Recipe = list[dict[str, Any]]


class Calls(list[dict[str, Any]]):
    """The calls of ``apply`` in a configuration, which several parts of a model can have.

    Each call names the class of its ``part``. Copies and pickles are plain lists, as what is read
    from config.json.

    Attributes:
        owners: for every class a function that returns the part, or None if it is gone.
    """

    def __init__(self, calls: Recipe, owners: dict[str, Callable[[], nn.Module | None]]) -> None:
        super().__init__(calls)
        self.owners = owners

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return list, ([*self],)


def recipe(model: nn.Module) -> Recipe:
    """Returns the calls of ``apply`` on a model, in types of JSON, for :func:`restore`.

    Args:
        model: with methods; several calls of ``apply``, also to parts of the model, are all noted.

    Returns:
        One entry for each call: the methods with their options, and the arguments of ``apply``. It
        is empty if the model has no methods.

    Raises:
        InputError: a method is a lambda, or an option is not of a type of JSON.
    """
    if missing := lost(model):
        warnings.warn(missing, stacklevel=2)
    found: Recipe = []
    for name, module in uncompiled(model).named_modules():
        for call in vars(module).get(NOTE, []):
            if "unclear" in call:
                raise InputError(f"recipe: {call['unclear']}")
            found.append({"module": name, **call} if name else dict(call))
    return found


def title(model: nn.Module) -> str:
    """Returns the name of a model's class, and its methods: ``GCN with layernorm, residual``."""
    calls = [call for module in model.modules() for call in vars(module).get(NOTE, [])]
    names = [method["name"] for call in calls for method in call.get("methods", ())]
    own = type(model).__name__
    return f"{own} with {', '.join(dict.fromkeys(names))}" if names else own


def checked(calls: Recipe) -> Recipe:
    """Returns a recipe, for example from a file. Raises InputError if it has another form."""
    of_calls = isinstance(calls, list | tuple) and all(
        isinstance(call, Mapping)
        and call.keys() <= KEYS
        and isinstance(call.get("methods"), list | tuple)
        for call in calls
    )
    methods = [method for call in calls for method in call["methods"]] if of_calls else [None]
    if not all(isinstance(m, Mapping) and isinstance(m.get("name"), str) for m in methods):
        raise InputError(
            "recipe: it has another form; give the list that oversmoothing.recipe(model) returned"
        )
    return calls


def note(model: nn.Module, methods: Sequence[Factory], options: dict[str, Any]) -> None:
    """Notes a call of ``apply`` at a model and in its configuration."""
    calls = vars(model).setdefault(NOTE, [])
    try:
        call = {"methods": [_described(method) for method in methods], **options}
        calls.append(json.loads(json.dumps(call, default=_listed)))
    except (TypeError, ValueError, InputError) as error:
        calls.append({"unclear": f"{error}; give classes, and options as numbers and words"})
    if _is_configured(model) and not any("unclear" in call for call in calls):
        kind = type(model).__name__
        owners = _owners(model)
        if _apart(owners.get(kind), model):
            warnings.warn(
                f"another {kind} with methods has the same configuration, which save_pretrained of "
                "both writes; build each from its own copy, made before apply",
                stacklevel=4,
            )
        others = [call for call in noted(model) or [] if call.get("part") in owners.keys() - {kind}]
        own = [{"part": kind, **call} for call in calls]
        setattr(model.config, NOTE, Calls([*others, *own], {**owners, kind: ref(model)}))


def forget(model: nn.Module) -> None:
    """Deletes the notes at a model, its parts and their configurations."""
    for module in model.modules():
        vars(module).pop(NOTE, None)
        if _is_configured(module) and NOTE in vars(module.config):
            owners = {kind: of for kind, of in _owners(module).items() if _apart(of, model)}
            kept = [call for call in noted(module) or [] if call.get("part") in owners]
            setattr(module.config, NOTE, Calls(kept, owners))
            if not kept:
                delattr(module.config, NOTE)


def noted(model: nn.Module) -> Recipe | None:
    """Returns the recipe in a model's configuration; None if there is none."""
    return getattr(model.config, NOTE, None) if _is_configured(model) else None


def _owners(model: nn.Module) -> dict[str, Callable[[], nn.Module | None]]:
    """Returns the parts, of this model or another one, whose methods its configuration names."""
    calls = noted(model)
    owners = calls.owners if isinstance(calls, Calls) else {}
    return {kind: of for kind, of in owners.items() if of() is not None}


def _apart(owner: Callable[[], nn.Module | None] | None, model: nn.Module) -> bool:
    """Whether a living part is neither around nor in a model."""
    part = owner() if owner else None
    return part is not None and part not in {*model.modules()} and model not in {*part.modules()}


def part_of(model: nn.Module, call: dict[str, Any]) -> nn.Module:
    """Returns the part of a model that a call of a recipe names, and takes the names out of it.

    A class names a part only if there is one of it, as after a change of the head.

    Raises:
        InputError: the model has no such part.
    """
    kind, name = call.pop("part", None), call.pop("module", "")
    try:
        part = model.get_submodule(name)
    except AttributeError as error:
        raise InputError(f"recipe: is of another model ({error}); give one like it") from error
    alike = [module for module in part.modules() if type(module).__name__ == kind]
    return alike[0] if len(alike) == 1 else part


def lost(model: nn.Module) -> str | None:
    """Returns a sentence if a model was loaded without the methods in its configuration."""
    if placed_in(model):
        return None
    for name, part in model.named_modules():
        owners = _owners(part)
        calls = noted(part) or []
        if calls := [c for c in calls if not _apart(owners.get(c.get("part")), model)]:
            methods = ", ".join(method["name"] for call in calls for method in call["methods"])
            return (
                f"the configuration of this {type(part).__name__} names {methods}, which it "
                f"lacks; oversmoothing.restore({f'model.{name}'.strip('.')}) puts them in"
            )
    return None


def load_saved(model: nn.Module) -> str | None:
    """Loads the parameters of a model's methods from the files that the model was loaded from.

    Returns:
        None, or a sentence on those that were not found.
    """
    sites = [name for name, module in model.named_modules() if isinstance(module, Site)]
    own = {key for key in model.state_dict() if key.startswith(tuple(f"{n}." for n in sites))}
    home = getattr(model.config, "_name_or_path", "")
    try:
        found = _saved(home, _in_files(model, own)) if own and home else {}
    except (OSError, ValueError) as error:
        return f"parameters of methods keep their initial values ({described(error)})"
    model.load_state_dict(found, strict=False)
    if missing := own - found.keys():
        return f"{min(missing)} is not in {home or 'a file'} and keeps its initial values"
    return None


def _in_files(model: nn.Module, keys: Collection[str]) -> dict[str, str]:
    """Returns keys of a state by their names in files, in which transformers keeps older names."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # of versions without such names
        return {key: key for key in keys}
    numbered = dict(enumerate(keys))
    state = {key: torch.tensor(i) for i, key in numbered.items()}
    return {name: numbered[int(i)] for name, i in revert_weight_conversion(model, state).items()}


def _saved(home: str, wanted: Mapping[str, str]) -> dict[str, Tensor]:
    """Reads tensors from the safetensors of a folder or a repository of the hub.

    A model with a head has its inner one's names behind a prefix, and the other way round.

    Args:
        wanted: names in the files -> keys of the result.
    """
    from safetensors import safe_open
    from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file

    try:
        files = {SAFE_WEIGHTS_NAME}
        cached_file(home, SAFE_WEIGHTS_NAME)
    except OSError:
        index = Path(cached_file(home, SAFE_WEIGHTS_INDEX_NAME)).read_text(encoding="utf-8")
        files = {*json.loads(index)["weight_map"].values()}
    found: dict[str, Tensor] = {}
    for file in files:
        with safe_open(cached_file(home, file), "pt") as saved:
            for name in saved.keys():  # noqa: SIM118 (no mapping)
                for own, key in wanted.items():
                    if f".{name}".endswith(f".{own}") or f".{own}".endswith(f".{name}"):
                        found[key] = saved.get_tensor(name)
    return found


def _is_configured(module: nn.Module) -> bool:
    """Whether a module is a model of transformers."""
    return hasattr(module, "save_pretrained") and hasattr(module.config, "to_diff_dict")


def _described(factory: Factory) -> dict[str, Any]:
    """Returns the name of a method, and its options with their defaults, which may change."""
    options: dict[str, Any] = {}
    while isinstance(factory, partial):
        given = signature(factory.func).bind_partial(*factory.args).arguments
        options = given | factory.keywords | options
        factory = factory.func
    names = {kind: name for name, kind in known().items()}
    name = names.get(factory, factory.__name__)
    if name == "<lambda>":
        raise InputError("a lambda has no name")
    parameters = signature(factory).parameters
    defaults = {key: parameters[key].default for key in parameters if key not in SIZES}
    kept = {key: value for key, value in defaults.items() if type(value) in (bool, int, float, str)}
    return {"name": name, **kept, **options}


def _listed(value: Any) -> Any:
    """Converts arrays of numbers, such as indices of blocks."""
    if hasattr(value, "tolist") and not hasattr(value, "requires_grad"):
        return value.tolist()
    if isinstance(value, range):
        return [*value]
    raise TypeError(f"{type(value).__name__} is no type of JSON")
