"""Puts aggregators into an existing model, and takes them out again."""

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from oversmoothing.adapters.attention import share_first_values
from oversmoothing.adapters.blocks import Asked, choose, uncompiled
from oversmoothing.adapters.calls import Capture, Current, ungrouped
from oversmoothing.adapters.masks import around
from oversmoothing.adapters.names import (
    factories,
    known,
    matching,
    place_after,
    require_all,
    require_match,
    warn_of_place,
)
from oversmoothing.adapters.recipe import (
    Recipe,
    checked,
    forget,
    load_saved,
    lost,
    note,
    noted,
    part_of,
)
from oversmoothing.adapters.site import (
    Placed,
    Site,
    channels,
    check_layout,
    placed_in,
    require_module,
    sites_of,
)
from oversmoothing.adapters.sites import Factory, kind_of
from oversmoothing.errors import InputError, ends

LIBRARIES = {  # whose models have known places -> the module here that knows them
    "torch_geometric": "pyg",
    "transformers": "hf",
    "timm": "timm",
    "torch": "multihead",  # nn.MultiheadAttention
}
BRANCHES = ("branch", "branches", "projection", "ffn")  # places before a residual sum


def apply(
    model: nn.Module,
    aggregator: str | Factory | Sequence[str | Factory],
    *,
    blocks: str | Sequence[int] = "all",
    where: str | None = None,
    layout: str | None = None,
    causal: bool | None = None,
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
            the list, none twice in a row with the same options.
        blocks: ``all``, ``last-half``, ``last-k`` or a list of indices from 0; negative indices
            count from the end. The blocks of all stacks of one class count in one row.
        where: the place of aggregators that act after the mixing. The names of places depend on
            the library, see the guide. In any model, ``where`` can also be a pattern of module
            names such as ``layers.*.linear2``, where a ``*`` matches no dot: aggregators then act
            on the outputs of these modules, and ``blocks`` must be left out.
        layout: of the outputs at a pattern, if they are not tokens (B, N, C) or nodes (N, C):
            ``NBC``, ``BCN``, ``BCHW`` or ``BHWC`` (B samples, N tokens, C channels, H rows, W
            columns).
        causal: whether a token sees only itself and earlier ones, so that aggregators that would
            show it later ones are refused. None: read from a model of transformers, where unknown
            counts as causal; False elsewhere.
        options: of the aggregator, if it is given by name or class.

    Returns:
        The model.

    Raises:
        InputError: the model offers no such place, the blocks already have aggregators, the model
            is causal and the aggregator is not, ``causal`` is False and the model is causal, or
            a name or an option is unknown. The model stays unchanged.
    """
    if missing := lost(model):
        warnings.warn(missing, stacklevel=2)
    _put(model, factories(aggregator, options), blocks, where, layout, causal)
    return model


def _put(
    model: nn.Module,
    wanted: list[Factory],
    blocks: str | Sequence[int] = "all",
    where: str | None = None,
    layout: str | None = None,
    causal: bool | None = None,
) -> None:
    """Puts aggregators into a model and notes it; for the arguments see ``apply``."""
    plain = uncompiled(model)
    require_plain(plain)
    check_layout(layout)
    placed = _placed(plain, wanted, blocks, where, layout, causal)
    require_attachable(placed)
    for place in placed:
        _adapt(place, plain)
        place.site.attach(place.module)
    given = {"blocks": blocks, "where": where, "layout": layout, "causal": causal}
    note(plain, wanted, {key: value for key, value in given.items() if value is not None})
    _forget_compiled()


def remove(model: nn.Module) -> nn.Module:
    """Takes all aggregators out of a model and so undoes :func:`apply`.

    A model without aggregators stays as it is.

    Returns:
        The model.

    Raises:
        InputError: the forward of an attention is patched. The model stays unchanged.
    """
    placed = placed_in(model)
    for module, site in placed:
        if isinstance(site, Site):
            site.check(module)
    for place in placed:
        place.site.detach(place.module)
    forget(model)
    _forget_compiled()
    return model


def restore(
    model: nn.Module, recipe: Recipe | None = None, own: Sequence[Factory] = ()
) -> nn.Module:
    """Applies the methods of a recipe.

    Their parameters are the initial ones, so load weights afterwards. With the recipe in a model's
    configuration, they are read from where ``from_pretrained`` loaded the model.

    Args:
        model: without methods; it is changed in place.
        recipe: of :func:`recipe`; None: that in the configuration of a model of transformers.
        own: classes and functions outside this package that the recipe names.

    Returns:
        The model.

    Raises:
        InputError: there is no recipe, it has another form, it names a method that is not known, or
            what ``apply`` raises. A recipe never imports code.
    """
    calls = noted(require_module(model)) if recipe is None else recipe
    if calls is None:
        raise InputError(
            f"recipe: {type(model).__name__} has none in its configuration; give that of "
            "oversmoothing.recipe(model), taken before the model was saved"
        )
    if not isinstance(own, list | tuple) or not all(hasattr(one, "__name__") for one in own):
        raise InputError(f"own: expected a list of classes or functions, got {own!r}")
    names: dict[str, Factory] = {**known(), **{factory.__name__: factory for factory in own}}
    for call in checked(calls):
        options = dict(call)
        part = part_of(model, options)
        _put(part, [_made(dict(method), names) for method in options.pop("methods")], **options)
    if recipe is None and (unread := load_saved(model)):
        warnings.warn(unread, stacklevel=2)
    return model


def _made(method: dict[str, Any], names: dict[str, Factory]) -> Factory:
    name = method.pop("name")
    if name not in names:
        raise InputError(f"recipe: method {name} is not known; give its class, as in own=[{name}]")
    [factory] = factories(names[name], method)
    return factory


def _adapt(place: Placed, model: nn.Module) -> None:
    """Moves aggregators to the device, dtype and mode of the module where they act."""
    if isinstance(place.site, Site):
        parameters = (*place.module.parameters(), *model.parameters())
        like = next((p for p in parameters if p.is_floating_point()), None)
        if like is not None:
            place.site.to(like.device, like.dtype)
        place.site.train(place.module.training)


def _placed(
    model: nn.Module,
    wanted: list[Factory],
    blocks: str | Sequence[int],
    where: str | None,
    layout: str | None,
    causal: bool | None,
) -> list[Placed]:
    """Checks the arguments and builds sites and hooks; changes nothing in the model."""
    current, library = Current(), library_of([model])
    if library is None:
        require_outside(model, wanted)
    if names := matching(model, where):
        require_all(blocks, names)
        warn_of_place(library, where)
        modules = {name: model.get_submodule(name) for name in names}
        require_free(modules)
        require_order(library, model, modules.values(), wanted, causal)
        placed = place_after(model, names, wanted, current, layout)
    else:
        if library is None:
            require_match(model, where)
        require_no_layout(layout)
        choice = choose(model, blocks)
        require_free(choice.blocks)
        names = list(choice.blocks)
        library = require_library(model, choice.blocks.values(), wanted)
        require_order(library, model, choice.blocks.values(), wanted, causal)
        require_place(library, choice.blocks.values(), wanted, where)
        placed = library.place(Asked(model, choice, wanted, where, current))
        require_some(placed, where, [*choice.blocks.values()], wanted)
    require_prefix(model, placed)
    placed = [Placed(uncompiled(module), site) for module, site in placed]
    placed = [*{(at.module, type(at.site)): at for at in placed}.values()]  # one of a shared module
    share_first_values(model, placed, current)
    placed += around(library, model, placed)
    return placed + _readers(library, model, names, placed, current)


def _readers(
    library: ModuleType | None,
    model: nn.Module,
    names: Sequence[str],
    placed: Sequence[Placed],
    current: Current,
) -> list[Placed]:
    """Returns the hooks that begin and end a call of the model."""
    every = sites_of(placed)
    sites = [site for site in every if site.current is current]
    of_values = any(site.reads_values for site in every)
    of_library = getattr(library, "readers", None)  # nn.MultiheadAttention gets the padding itself
    found = of_library(model, names, current) if of_library and (sites or of_values) else []
    found = found if sites else [Placed(m, Capture(current, m, ungrouped)) for m, _ in found]
    if not found and (of_values or any(s.keeps_call or s.reads_inputs for s in sites)):
        return [Placed(model, Capture(current, model, ungrouped))]
    return found


def _forget_compiled() -> None:
    """Drops compiled code, which still has the aggregators from before the change."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def library_of(blocks: Iterable[nn.Module]) -> ModuleType | None:
    """Returns the adapter for the library that the modules in the blocks come from."""
    kinds = {kind for block in blocks for m in block.modules() for kind in type(m).__mro__}
    homes = {kind.__module__.partition(".")[0] for kind in kinds}
    if nn.MultiheadAttention not in kinds:
        homes.discard("torch")
    found = [module for library, module in LIBRARIES.items() if library in homes]
    return import_module(f"oversmoothing.adapters.{found[0]}") if found else None


def require_plain(model: nn.Module) -> None:
    """Checks that a model is neither compiled by torch.jit nor wrapped for several GPUs."""
    name = type(model).__name__
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
            f"blocks: {ends(taken)} already contain aggregators; choose other blocks, remove "
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


def require_place(
    library: ModuleType, blocks: Iterable[nn.Module], wanted: Sequence[Factory], where: str | None
) -> None:
    """Checks that no block adds its input twice, and that factors of branches act on branches."""
    dim = channels(next(iter(blocks)), wanted)
    kinds = [kind_of(factory, dim) for factory in wanted]
    if not library.ADDS_INPUTS:
        adds = any(kind.reads_inputs for kind in kinds)
        if where is None and not adds and (found := [own for own in kinds if own.of_branches]):
            raise InputError(
                f"aggregator {found[0].__name__}: scales a branch before its residual sum, which "
                'these layers lack; add the sum, as in ["rezero", "residual"]'
            )
        return
    if found := [kind for kind in kinds if kind.reads_inputs]:
        raise InputError(
            f"aggregator {found[0].__name__} adds the input of a layer, which these blocks add "
            "already; give where= as a pattern of names of modules that do not"
        )
    if where not in (None, *BRANCHES) and any(kind.of_branches for kind in kinds):
        raise InputError(
            f"where: branches are scaled before their residual sum, got {where!r}; leave it out, "
            f"or give one of {', '.join(BRANCHES)} or a pattern of module names"
        )


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
    of_library = getattr(library, "is_causal", None)  # only text is causal
    is_causal = {part: of_library(model, part) if of_library else False for part in parts}
    if causal is False and any(is_causal.values()):
        raise InputError(
            f"causal: {name} hides later tokens, got False; leave it out, or make the model "
            "bidirectional first (many read config.is_causal=False)"
        )
    hidden = parts if causal else [part for part in parts if is_causal[part] is not False]
    if causal is False or not hidden:
        return
    kinds = [kind_of(factory, channels(hidden[0], wanted)) for factory in wanted]
    if unfit := [kind.__name__ for kind in kinds if not getattr(kind, "can_be_causal", True)]:
        sure = causal or any(is_causal.values())
        more = ", or not known to be otherwise; give causal=False if its tokens see all others, or"
        raise InputError(
            f"aggregator {unfit[0]} lets a token see later ones, and {name} is causal"
            f"{';' if sure else more} choose one that can be causal, for example centered or "
            "layernorm"
        )


def require_no_layout(layout: str | None) -> None:
    """Checks that a layout is given only with a pattern of module names."""
    if layout is not None:
        raise InputError(
            f"layout: the outputs of known blocks have a known layout, got {layout!r}; leave it "
            "out, or give where= as a pattern of module names"
        )


def require_some(
    placed: Sequence[Placed], where: str | None, blocks: Sequence[nn.Module], wanted: list[Factory]
) -> None:
    """Checks that there is at least one place, and that ``where`` has an effect."""
    kinds = [] if placed else [kind_of(factory, channels(blocks[0], wanted)) for factory in wanted]
    if joining := [kind for kind in kinds if kind.reads_inputs]:
        raise InputError(
            f"blocks: {joining[0].__name__} joins a layer to an earlier one with as many channels "
            f"in and out, and these {len(blocks)} have no such place; leave it out, or choose "
            "three layers or more"
        )
    if not placed:
        raise InputError(
            "blocks: these have no place for the aggregator; choose other blocks, or give where= "
            "as a pattern of module names"
        )
    every = [aggregator for site in sites_of(placed) for aggregator in site]
    if where is not None and not any(aggregator.site == "after" for aggregator in every):
        raise InputError(
            f"where: only aggregators that act after the mixing have a choice, got {where!r}; "
            "leave it out"
        )


def require_prefix(model: nn.Module, placed: Sequence[Placed]) -> None:
    """Checks that the model has prefix tokens if an aggregator leaves them out."""
    blind = [a for site in sites_of(placed) for a in site if site.context.prefix == 0]
    if any(getattr(aggregator, "prefix_in_mean", True) is False for aggregator in blind):
        raise InputError(
            f"prefix_in_mean: no token of {type(model).__name__} is known to come before the words "
            "or patches, so none would be left out; leave the option out"
        )
