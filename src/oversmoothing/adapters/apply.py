"""Puts aggregators into an existing model, and takes them out again."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from oversmoothing.adapters import pattern
from oversmoothing.adapters.choice import choose
from oversmoothing.adapters.current import Current
from oversmoothing.adapters.names import factories
from oversmoothing.adapters.site import Placed, Site, placed_in
from oversmoothing.adapters.sites import Factory
from oversmoothing.errors import InputError

LIBRARIES = {  # the module that knows the places for aggregators in a library's models
    "torch_geometric": "pyg_models",
    "transformers": "hf_models",
    "timm": "timm_models",
}


def apply(
    model: nn.Module,
    aggregator: str | Factory | Sequence[str | Factory],
    *,
    blocks: str | Sequence[int] = "all",
    where: str | None = None,
    **options: Any,
) -> nn.Module:
    """Puts an aggregator into the blocks of a model of timm, transformers or torch-geometric.

    The model is changed in place. Its modules, their names and their parameters stay. The
    aggregators are new modules in it, so an optimiser that is built afterwards trains their
    parameters. A second call can put another aggregator, or other options, into other blocks.
    :func:`remove` takes all aggregators out.

    Args:
        model: to change.
        aggregator: a name (``centered``, ``contranorm``, …), an aggregator class, a function or
            ``functools.partial`` that builds one, or a list of those, which act in the order of
            the list.
        blocks: ``all``, ``last-half``, ``last-k`` or a list of indices from 0; negative indices
            count from the end.
        where: the place of aggregators that act after the mixing. The names of places depend on
            the library, see the guide. In any model, ``where`` can also be a pattern of module
            names such as ``layers.*.linear2``, where a ``*`` matches no dot: aggregators then act
            on the outputs of these modules, and ``blocks`` must be left out.
        options: of the aggregator, if it is given by name or class.

    Returns:
        The model.

    Raises:
        InputError: the model offers no such place, the blocks already have aggregators, the model
            is causal and the aggregator is not, or a name or an option is unknown. The model stays
            unchanged.
    """
    plain = getattr(model, "_orig_mod", model)  # of torch.compile
    _require_plain(plain)
    placed = _placed(plain, factories(aggregator, options), blocks, where)
    _require_attachable(placed)
    for place in placed:
        _adapt(place, plain)
        place.site.attach(place.module)
    _forget_compiled()
    return model


def remove(model: nn.Module) -> nn.Module:
    """Takes all aggregators out of a model and so undoes :func:`apply`.

    A model without aggregators is refused, so a second call raises, too.

    Returns:
        The model.

    Raises:
        InputError: the model has no aggregators, or the forward of an attention is patched. The
            model stays unchanged.
    """
    placed = placed_in(_module(model))
    if not placed:
        raise InputError(f"model: {type(model).__name__} has no aggregators to remove")
    for module, site in placed:
        if isinstance(site, Site):
            site.check(module)
    for place in placed:
        place.site.detach(place.module)
    _forget_compiled()
    return model


def _module(model: nn.Module) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    return model


def _require_plain(model: nn.Module) -> None:
    name = type(_module(model)).__name__
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise InputError(
            f"model: {name} is compiled by torch.jit, which aggregators do not support; apply them "
            "to the plain model, and use torch.compile or torch.export"
        )
    if isinstance(model, DataParallel | DistributedDataParallel):
        raise InputError(f"model: apply before {name}, so that it learns of new parameters")


def _require_free(modules: Mapping[str, nn.Module]) -> None:
    """Checks that no aggregators act in the chosen modules yet."""
    if taken := [name for name, module in modules.items() if placed_in(module)]:
        raise InputError(
            f"blocks: {', '.join(taken)} already contain aggregators; choose other blocks, remove "
            "the aggregators first, or apply a list of them"
        )


def _require_attachable(placed: Sequence[Placed]) -> None:
    """Checks that a site can be attached to every place; changes nothing."""
    for module, site in placed:
        if not isinstance(site, Site):
            continue
        site.check(module)
        if isinstance(getattr(module, site.name, None), Site):
            raise InputError(
                f"blocks: {type(module).__name__}, which blocks share, already has aggregators; "
                "remove them first, or apply a list of them"
            )
        if hasattr(module, site.name):
            raise InputError(
                f"model: {type(module).__name__} has an attribute {site.name!r} already, where its "
                "aggregators would be; rename it"
            )


def _adapt(place: Placed, model: nn.Module) -> None:
    """Moves aggregators to the device, dtype and mode of the module where they act."""
    if isinstance(place.site, Site):
        parameters = (*place.module.parameters(), *model.parameters())
        like = next((p for p in parameters if p.is_floating_point()), None)
        if like is not None:
            place.site.to(like.device, like.dtype)
        place.site.train(place.module.training)


def _placed(
    model: nn.Module, wanted: list[Factory], blocks: str | Sequence[int], where: str | None
) -> list[Placed]:
    """Builds the sites and the hooks that read their groups of tokens; changes nothing."""
    current = Current()
    if _library([model]) is None:
        _require_outside(model, wanted)
    if names := pattern.matching(model, where):
        _require_all(blocks, names)
        modules = {name: model.get_submodule(name) for name in names}
        _require_free(modules)
        library = _library([model])
        if library is not None:
            library.require(model, modules.values(), wanted)
        placed = pattern.place(model, names, wanted, current)
    else:
        choice = choose(model, blocks)
        _require_free(choice.blocks)
        names, library = list(choice.blocks), _library(choice.blocks.values())
        if library is None:
            _require_outside(model, wanted)
            raise InputError(
                f"model: {type(model).__name__} has no blocks of {', '.join(LIBRARIES)}; give "
                "where= as a pattern of names of modules whose outputs are tokens (B, N, C)"
            )
        library.require(model, choice.blocks.values(), wanted)
        placed = library.place(model, choice, wanted, where, current)
        _require_some(placed, where)
    _require_prefix(model, placed)
    # A module that blocks share has one site.
    placed = [*{(place.module, place.site.name): place for place in placed}.values()]
    if library is None or not any(place.site.current is current for place in placed):
        return placed
    return placed + library.readers(model, names, current)


def _require_outside(model: nn.Module, wanted: Sequence[Factory]) -> None:
    """Checks that no aggregator acts inside the mixing of a model where it is not known."""
    for factory in wanted:
        kind = getattr(factory, "func", factory)
        if getattr(kind, "site", None) == "inside":
            name = kind.__name__
            raise InputError(
                f"aggregator {name} acts inside the mixing, which apply finds only in blocks of "
                f"{', '.join(LIBRARIES)}; in {type(model).__name__}, call it in the model's own "
                f"attention: self.method = {name}(…), then self.method(attn @ v, v)"
            )


def _require_all(blocks: str | Sequence[int], names: Sequence[str]) -> None:
    """Checks that ``blocks`` is left out if ``where`` is a pattern."""
    if not isinstance(blocks, str) or blocks != "all":
        raise InputError(
            f"blocks: where= is a pattern of module names, which matches {names[0]}; leave blocks "
            f"out, and put the numbers of blocks into the pattern (layers.[01].linear), got "
            f"{blocks!r}"
        )


def _require_some(placed: Sequence[Placed], where: str | None) -> None:
    """Checks that there is at least one place, and that ``where`` has an effect."""
    if not placed:
        raise InputError(
            "blocks: these have no place for the aggregator; choose other blocks, or give where= "
            "as a pattern of module names"
        )
    sites = [place.site for place in placed if isinstance(place.site, Site)]
    if where is not None and not any(a.site == "after" for site in sites for a in site):
        raise InputError(
            f"where: only aggregators that act after the mixing have a choice, got {where!r}; "
            "leave it out"
        )


def _require_prefix(model: nn.Module, placed: Sequence[Placed]) -> None:
    """Checks that the model has prefix tokens if an aggregator leaves them out."""
    sites = [place.site for place in placed if isinstance(place.site, Site)]
    blind = [a for site in sites for a in site if site.context.prefix == 0]
    if any(getattr(aggregator, "prefix_in_mean", True) is False for aggregator in blind):
        raise InputError(
            f"prefix_in_mean: no token of {type(model).__name__} is known to come before the words "
            "or patches, so none would be left out; leave the option out"
        )


def _library(blocks: Iterable[nn.Module]) -> ModuleType | None:
    """Returns the adapter for the library that the modules in the blocks come from."""
    kinds = {
        kind for block in blocks for module in block.modules() for kind in type(module).__mro__
    }
    homes = {kind.__module__.partition(".")[0] for kind in kinds}
    known = [module for library, module in LIBRARIES.items() if library in homes]
    return import_module(f"oversmoothing.adapters.{known[0]}") if known else None


def _forget_compiled() -> None:
    """Drops compiled code, which still has the aggregators from before the change."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
