"""Puts aggregators into an existing model, and takes them out again."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from oversmoothing.adapters import pattern
from oversmoothing.adapters.axes import check_layout
from oversmoothing.adapters.choice import choose
from oversmoothing.adapters.current import Current
from oversmoothing.adapters.libraries import library_of
from oversmoothing.adapters.names import factories
from oversmoothing.adapters.requirements import (
    require_all,
    require_attachable,
    require_free,
    require_library,
    require_match,
    require_module,
    require_no_layout,
    require_order,
    require_outside,
    require_plain,
    require_prefix,
    require_some,
    warn_of_place,
)
from oversmoothing.adapters.site import Placed, Site, placed_in
from oversmoothing.adapters.sites import Factory


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
            the list.
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
    plain = getattr(model, "_orig_mod", model)  # of torch.compile
    require_plain(plain)
    check_layout(layout)
    placed = _placed(plain, factories(aggregator, options), blocks, where, layout, causal)
    require_attachable(placed)
    for place in placed:
        _adapt(place, plain)
        place.site.attach(place.module)
    _forget_compiled()
    return model


def remove(model: nn.Module) -> nn.Module:
    """Takes all aggregators out of a model and so undoes :func:`apply`.

    A model without aggregators stays as it is.

    Returns:
        The model.

    Raises:
        InputError: the forward of an attention is patched. The model stays unchanged.
    """
    placed = placed_in(require_module(model))
    for module, site in placed:
        if isinstance(site, Site):
            site.check(module)
    for place in placed:
        place.site.detach(place.module)
    _forget_compiled()
    return model


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
    """Builds the sites and the hooks that read their groups of tokens; changes nothing."""
    current, library = Current(), library_of([model])
    if library is None:
        require_outside(model, wanted)
    if names := pattern.matching(model, where):
        require_all(blocks, names)
        warn_of_place(library, where)
        modules = {name: model.get_submodule(name) for name in names}
        require_free(modules)
        require_order(library, model, modules.values(), wanted, causal)
        placed = pattern.place(model, names, wanted, current, layout)
    else:
        if library is None:
            require_match(model, where)
        require_no_layout(layout)
        choice = choose(model, blocks)
        require_free(choice.blocks)
        names = list(choice.blocks)
        library = require_library(model, choice.blocks.values(), wanted)
        require_order(library, model, choice.blocks.values(), wanted, causal)
        placed = library.place(model, choice, wanted, where, current)
        require_some(placed, where)
    require_prefix(model, placed)
    # A module that blocks share has one site.
    placed = [*{(place.module, type(place.site)): place for place in placed}.values()]
    if library is None or not any(place.site.current is current for place in placed):
        return placed
    return placed + library.readers(model, names, current)


def _forget_compiled() -> None:
    """Drops compiled code, which still has the aggregators from before the change."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
