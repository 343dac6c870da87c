"""Aggregators after the modules whose names match a pattern, in a model of any kind."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from oversmoothing.adapters.channels import channels
from oversmoothing.adapters.current import Current
from oversmoothing.adapters.pyg_channels import output_channels
from oversmoothing.adapters.pyg_models import AfterConvolution
from oversmoothing.adapters.site import AfterModule, Placed
from oversmoothing.adapters.sites import Factory, Sites
from oversmoothing.errors import InputError


def matching(model: nn.Module, pattern: str | None) -> list[str]:
    """Returns the names of the modules that match a pattern such as ``layers.*.linear2``.

    Raises:
        InputError: the pattern is no string, or empty.
    """
    if not isinstance(pattern, str | None) or pattern == "":
        raise InputError(
            f"where: expected a place or one pattern of module names, got {pattern!r}; call apply "
            "once for each pattern"
        )
    names = [name for name, _ in model.named_modules()]
    return [name for name in names if pattern is not None and fits(name, pattern)]


def fits(name: str, pattern: str) -> bool:
    """Returns whether the name of a module matches a pattern, in which a ``*`` matches no dot."""
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def place(
    model: nn.Module,
    names: Sequence[str],
    factories: Sequence[Factory],
    current: Current,
    layout: str | None,
) -> list[Placed]:
    """Builds sites after the modules of these names.

    Args:
        layout: of the modules' outputs; None: tokens (B, N, C) or nodes (N, C).

    Raises:
        InputError: an aggregator does not act after the mixing, the tokens at a module are
            (N, B, C), or a module is a list of modules.
    """
    placed: dict[nn.Module, Placed] = {}
    for name in names:
        if layout is None:
            _require_batch_first(model, name)
        _require_called(model, name)
        module = named = model.get_submodule(name)
        _require_forward(name, module)
        while isinstance(module, nn.Sequential):  # a site as its child would be called as a layer
            module = module[-1]
        convolves = hasattr(module, "propagate")
        dim = output_channels(module, factories) if convolves else channels(named, factories)
        sites = Sites(factories, dim, f"a place after {name}", ("after",))
        kind = AfterConvolution if convolves else AfterModule
        site = kind(sites.build("after", dim), current=current, layout=layout, dim=dim)
        placed[module] = Placed(module, site)
    return list(placed.values())


def _require_forward(name: str, module: nn.Module) -> None:
    """Checks that the module has a forward, which a list of modules has not."""
    lists = isinstance(module, nn.ModuleList | nn.ModuleDict)
    if lists or (isinstance(module, nn.Sequential) and not len(module)):
        what, way = ("a list of modules", f"{name}.*") if lists else ("empty", "another place")
        raise InputError(f"where: {name} is {what} and computes nothing; choose {way}")


def _require_called(model: nn.Module, name: str) -> None:
    """Checks that the module is called; torch's attention reads only its child's weights."""
    parent = name.rpartition(".")[0]
    if name and isinstance(model.get_submodule(parent), nn.MultiheadAttention):
        raise InputError(
            f"where: {name} is never called, since MultiheadAttention reads only its weights; "
            f"choose {parent}"
        )


def _require_batch_first(model: nn.Module, name: str) -> None:
    """Checks that no attention or recurrent layer around a module expects tokens (N, B, C)."""
    parts = name.split(".")
    around = [model.get_submodule(".".join(parts[:depth])) for depth in range(len(parts))]
    near = [child for module in around for child in module.children()]
    for module in (*near, *model.get_submodule(name).modules()):
        if getattr(module, "batch_first", True) is False:
            raise InputError(
                f"where: tokens at {name} are (N, B, C), since {type(module).__name__} there has "
                "batch_first=False; give layout=NBC if the outputs are tokens of this form"
            )
