"""Puts aggregators into a model that exists, and takes them out again."""

import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

import oversmoothing.aggregators
from oversmoothing.adapters.channels import channels
from oversmoothing.adapters.choice import choose
from oversmoothing.adapters.site import AfterModule, Placed, Site, placed_in
from oversmoothing.adapters.sites import Factory, Sites
from oversmoothing.aggregators.base import Aggregator
from oversmoothing.errors import InputError, meant

LIBRARIES = {  # where the places in a library's models are known
    "torch_geometric": "pyg_models",
    "transformers": "hf_models",
    "timm": "timm_models",
}


def apply(
    model: nn.Module,
    aggregator: str | Factory | Sequence[Factory],
    *,
    blocks: str | Sequence[int] = "all",
    where: str | None = None,
    **options: Any,
) -> nn.Module:
    """Puts an aggregator into the blocks of a model of timm, transformers or torch-geometric.

    The model is changed in place. Its modules, their names and their parameters stay. The
    aggregators are new modules in it, so an optimiser that is built afterwards trains their
    parameters. :func:`remove` takes them out.

    Args:
        model: to change.
        aggregator: a name (``centered``, ``contranorm``, …), an aggregator class, a function or
            ``functools.partial`` that builds one, or a list of those, which act in its order.
        blocks: ``all``, ``last-half``, ``last-k`` or a list of indices from 0.
        where: the place of aggregators that act after the mixing. Each library has its own, see
            the guide. Or a pattern of module names, such as ``layers.*.linear2``, in a model of
            any kind: aggregators act on the outputs of these modules.
        options: of the aggregator, if it is given by name or class.

    Returns:
        The model.

    Raises:
        InputError: the model offers no such place, has aggregators already, or is causal and the
            aggregator is not; or a name or an option is unknown. The model is as it was.
    """
    plain = getattr(model, "_orig_mod", model)  # of torch.compile
    _require_plain(plain)
    placed = _placed(plain, _factories(aggregator, options), blocks, where)
    _require_free(placed)
    for place in placed:
        _adapt(place, plain)
        place.site.attach(place.module)
    _forget_compiled()
    return model


def remove(model: nn.Module) -> nn.Module:
    """Takes all aggregators out of a model, which then is as it was before :func:`apply`.

    Returns:
        The model.

    Raises:
        InputError: the model has no aggregators.
    """
    placed = placed_in(model)
    if not placed:
        raise InputError(f"model: {type(model).__name__} has no aggregators to remove")
    for place in placed:
        place.site.detach(place.module)
    _forget_compiled()
    return model


def _require_plain(model: nn.Module) -> None:
    name = type(model).__name__
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {name}")
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise InputError(f"model: {name} is compiled by torch.jit; apply before torch.jit.script")
    if isinstance(model, DataParallel | DistributedDataParallel):
        raise InputError(f"model: apply before {name}, so that it learns of new parameters")
    if placed_in(model):
        raise InputError(
            f"model: {name} has aggregators already; remove them first, or apply a list of them"
        )


def _require_free(placed: Sequence[Placed]) -> None:
    """Checks that the names of the sites are free, so that attaching cannot fail half-way."""
    for module, site in placed:
        if isinstance(site, Site) and hasattr(module, site.name):
            raise InputError(
                f"model: {type(module).__name__} has an attribute {site.name!r} already, where its "
                "aggregators would be; rename it"
            )


def _adapt(place: Placed, model: nn.Module) -> None:
    """Gives aggregators the device, the type and the mode of the module where they act."""
    if isinstance(place.site, Site):
        parameters = (*place.module.parameters(), *model.parameters())
        like = next((p for p in parameters if p.is_floating_point()), None)
        if like is not None:
            place.site.to(like.device, like.dtype)
        place.site.train(place.module.training)


def _factories(given: str | Factory | Sequence[Factory], options: dict[str, Any]) -> list[Factory]:
    """Returns factories for what the user gave."""
    if isinstance(given, list | tuple):
        return [factory for one in given for factory in _factories(one, options)]
    factory = _named(given) if isinstance(given, str) else given
    if not callable(factory):
        raise InputError(f"aggregator: expected a name, a class or a function, got {given!r}")
    known = [name for name in signature(factory).parameters if name != "dim"]
    for name in options:
        if name not in known:
            raise InputError(f"{name}: no option of {_name(factory)}; {meant(name, known)}")
    return [partial(factory, **options)] if options else [factory]


def _name(factory: Factory) -> str:
    return getattr(getattr(factory, "func", factory), "__name__", "the aggregator")


def _named(name: str) -> type[Aggregator]:
    """Returns the aggregator of a name."""
    known = _known()
    if name not in known:
        raise InputError(f"aggregator: no aggregator {name!r}; {meant(name, known)}")
    return known[name]


@cache
def _known() -> dict[str, type[Aggregator]]:
    """Returns the aggregator class of every module that defines one, by the module's name."""
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


def _placed(
    model: nn.Module, factories: list[Factory], blocks: str | Sequence[int], where: str | None
) -> list[Placed]:
    """Builds the sites, without a change to the model."""
    if where is not None and any(fnmatchcase(name, where) for name, _ in model.named_modules()):
        return _behind(model, factories, where)
    choice = choose(model, blocks)
    library = _library(choice.blocks.values())
    if library is None:
        raise InputError(
            f"model: {type(model).__name__} has no blocks of {', '.join(LIBRARIES)}; give where= "
            f"as a pattern of module names whose outputs are tokens (B, N, C), got {where!r}"
        )
    placed = import_module(f"oversmoothing.adapters.{LIBRARIES[library]}").place(
        model, choice, factories, where
    )
    sites = [place.site for place in placed if isinstance(place.site, Site)]
    if not sites:
        raise InputError("blocks: these have no place for the aggregator")
    if where is not None and not any(a.site == "after" for site in sites for a in site):
        raise InputError(
            f"where: only aggregators that act after the mixing have a choice, got {where!r}; "
            "leave it out"
        )
    return placed


def _behind(model: nn.Module, factories: list[Factory], pattern: str) -> list[Placed]:
    """Builds sites behind all modules whose names match a pattern."""
    placed: dict[nn.Module, Placed] = {}
    for name, module in model.named_modules():
        if fnmatchcase(name, pattern):
            while isinstance(module, nn.Sequential):  # a child of it would become a layer of it
                module = module[-1]
            dim = channels(module, factories)
            sites = Sites(factories, dim, f"a place behind {name}", ("after",))
            placed[module] = Placed(module, AfterModule(sites.build("after", dim)))
    return list(placed.values())


def _library(blocks: Iterable[nn.Module]) -> str | None:
    """Returns the library that a module in the blocks comes from."""
    kinds = {
        kind for block in blocks for module in block.modules() for kind in type(module).__mro__
    }
    homes = {kind.__module__.partition(".")[0] for kind in kinds}
    return next((library for library in LIBRARIES if library in homes), None)


def _forget_compiled() -> None:
    """Drops compiled code, which would go on without the aggregators or with them."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
