"""Chooses the layers of a model to look at."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from oversmoothing.adapters.blocks import find_blocks
from oversmoothing.adapters.pattern import fits
from oversmoothing.errors import InputError, meant

Layers = str | nn.Module | Iterable[str | nn.Module] | None
COMPILED = "_orig_mod"  # torch.compile's name for the wrapped module


def choose_layers(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    """Returns the layers to look at, by name.

    Args:
        layers: None: the repeated blocks. Else a name, a glob of names such as ``convs.*``, a
            module of the model, or a list of these. A ``*`` matches no dot.

    Raises:
        InputError: no repeated blocks, or a name, glob or module that the model does not have.
    """
    found = _chosen(model, layers)
    for name, module in found.items():
        if isinstance(module, torch.jit.ScriptModule):
            raise InputError(
                f"layers: {name} is a module of torch.jit, which takes no hooks; give the model "
                "that was scripted or traced"
            )
    return found


def _chosen(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    if layers is None:
        _require_parameters(model)
        return {readable(name): block for name, block in find_blocks(model).items()}
    modules = {readable(name): module for name, module in model.named_modules() if name}
    single = isinstance(layers, str | nn.Module) or not isinstance(layers, Iterable)
    wanted: list[Any] = [layers] if single else list(layers)  # type: ignore[arg-type]
    if strange := [one for one in wanted if not isinstance(one, str | nn.Module)]:
        raise InputError(f"layers: expected names, globs or modules, got {strange[0]!r}")
    if not wanted:
        raise InputError("layers: got an empty list; name modules, or leave layers out")
    return {name: module for one in wanted for name, module in _matches(modules, one).items()}


def _require_parameters(model: nn.Module) -> None:
    """Raises InputError if FSDP keeps the parameters of all blocks together, which hides them."""
    inner = getattr(model, "_fsdp_wrapped_module", None)
    if inner is not None and not any(True for m in inner.children() for _ in m.parameters()):
        raise InputError(
            "layers: FSDP keeps the parameters of all blocks in one tensor, so that blocks cannot "
            "be found; name them, such as layers='_fsdp_wrapped_module.blocks.*', or shard the "
            "model by fully_shard"
        )


def readable(name: str) -> str:
    """Returns the name of a module without the parts that torch.compile adds."""
    return ".".join(part for part in name.split(".") if part != COMPILED)


def _matches(modules: dict[str, nn.Module], wanted: str | nn.Module) -> dict[str, nn.Module]:
    if isinstance(wanted, nn.Module):
        found = {name: module for name, module in modules.items() if module is wanted}
        if not found:
            raise InputError(
                f"layers: got a {type(wanted).__name__} that is not a module of the model; take it "
                "from model.named_modules()"
            )
        return found
    found = {name: module for name, module in modules.items() if fits(name, wanted)}
    if not found:
        raise InputError(f"layers: {wanted!r} matches no module; {meant(wanted, modules)}")
    return found
