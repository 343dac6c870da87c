"""Checks of what a user gives to ``apply`` and ``remove``."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from oversmoothing.adapters.channels import channels
from oversmoothing.adapters.libraries import LIBRARIES, library_of
from oversmoothing.adapters.site import Placed, Site, placed_in
from oversmoothing.adapters.sites import Factory, kind_of
from oversmoothing.errors import InputError, closest, meant


def require_module(model: nn.Module) -> nn.Module:
    """Returns the model; raises InputError if it is not a module of torch."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    return model


def require_plain(model: nn.Module) -> None:
    """Checks that a model is neither compiled by torch.jit nor wrapped for several GPUs."""
    name = type(require_module(model)).__name__
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise InputError(
            f"model: {name} is compiled by torch.jit, which aggregators do not support; apply them "
            "to the plain model, and use torch.compile or torch.export"
        )
    if isinstance(model, DataParallel | DistributedDataParallel):
        raise InputError(f"model: call apply before {name}, so that it registers new parameters")


def require_free(modules: Mapping[str, nn.Module]) -> None:
    """Checks that no aggregators act in the chosen modules yet."""
    if taken := [name for name, module in modules.items() if placed_in(module)]:
        raise InputError(
            f"blocks: {', '.join(taken)} already contain aggregators; choose other blocks, remove "
            "the aggregators first, or apply a list of them"
        )


def require_attachable(placed: Sequence[Placed]) -> None:
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


def require_outside(model: nn.Module, wanted: Sequence[Factory]) -> None:
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


def require_library(
    model: nn.Module, blocks: Iterable[nn.Module], wanted: Sequence[Factory]
) -> ModuleType:
    """Returns the adapter for the library of some blocks; raises InputError if there is none."""
    library = library_of(blocks)
    if library is None:
        require_outside(model, wanted)
        raise InputError(
            f"model: {type(model).__name__} has no blocks of {', '.join(LIBRARIES)}; give where= "
            "as a pattern of names of modules whose outputs are tokens (B, N, C)"
        )
    return library


def require_order(
    library: ModuleType | None,
    model: nn.Module,
    parts: Iterable[nn.Module],
    wanted: Sequence[Factory],
    causal: bool | None,
) -> None:
    """Checks that no aggregator lets a token of a causal model see later ones.

    Args:
        causal: what the user says; None: as the library knows it, and causal where it does not.
    """
    if not isinstance(causal, bool | None):
        raise InputError(f"causal: expected True, False or None (found out), got {causal!r}")
    name, parts = type(model).__name__, [*parts]
    known = {part: False if library is None else library.is_causal(model, part) for part in parts}
    if causal is False and any(known.values()):
        raise InputError(
            f"causal: {name} hides later tokens, got False; leave it out, or make the model "
            "bidirectional first (many read config.is_causal=False)"
        )
    hidden = parts if causal else [part for part in parts if known[part] is not False]
    if causal is False or not hidden:
        return
    kinds = [kind_of(factory, channels(hidden[0], wanted)) for factory in wanted]
    if unfit := [kind.__name__ for kind in kinds if not getattr(kind, "can_be_causal", True)]:
        sure = causal or any(known.values())
        raise InputError(
            f"aggregator {unfit[0]} lets a token see later ones, and {name} is causal"
            + ", or not known to be otherwise; give causal=False if its tokens see all others, or"
            * (not sure)
            + ";" * sure
            + " choose one that can be causal, for example centered or layernorm"
        )


def require_match(model: nn.Module, where: str | None) -> None:
    """Checks that no pattern is given, since it matches no module."""
    if where is not None:
        names = (name for name, _ in model.named_modules() if name)
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


def require_no_layout(layout: str | None) -> None:
    """Checks that a layout is given only with a pattern of module names."""
    if layout is not None:
        raise InputError(
            f"layout: the outputs of known blocks have a known layout, got {layout!r}; leave it "
            "out, or give where= as a pattern of module names"
        )


def require_some(placed: Sequence[Placed], where: str | None) -> None:
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


def require_prefix(model: nn.Module, placed: Sequence[Placed]) -> None:
    """Checks that the model has prefix tokens if an aggregator leaves them out."""
    sites = [place.site for place in placed if isinstance(place.site, Site)]
    blind = [a for site in sites for a in site if site.context.prefix == 0]
    if any(getattr(aggregator, "prefix_in_mean", True) is False for aggregator in blind):
        raise InputError(
            f"prefix_in_mean: no token of {type(model).__name__} is known to come before the words "
            "or patches, so none would be left out; leave the option out"
        )
