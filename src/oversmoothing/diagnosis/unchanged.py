"""Restores a model, torch's settings and random numbers after a measurement."""

import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from oversmoothing.errors import InputError

KEPT = (dict, OrderedDict, list)  # attributes of these types get their contents back


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restores what a forward pass may change: modes, buffers, attributes, random numbers.

    The forward pass must not write into parameters.
    """
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with same_attributes(model), same_random_numbers(model):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in values:
                    if _differs(buffer, value):  # writing would invalidate what autograd saved
                        buffer.copy_(value)


@contextmanager
def same_attributes(model: nn.Module) -> Iterator[None]:
    """Restores the attributes of all modules, with what their dictionaries and lists hold.

    Everything is restored by reference: parameters, buffers, hooks and modules are the same
    objects again. Other objects that a module changes in place stay changed.
    """
    own = [vars(module) for module in model.modules()]
    before = [(attributes, dict(attributes)) for attributes in own]
    inside = [(v, v.copy()) for attributes in own for v in attributes.values() if type(v) in KEPT]
    try:
        yield
    finally:
        for attributes, values in (*before, *inside):
            attributes.clear()
            (attributes.extend if isinstance(attributes, list) else attributes.update)(values)


@contextmanager
def same_random_numbers(model: nn.Module) -> Iterator[None]:
    """Restores random numbers: of torch on the CPU and on a model's devices, Python, numpy.

    Generators that are attributes of the model are restored as well.
    """
    devices: dict[str, list[int]] = {"cpu": []}
    for device in {p.device for p in model.parameters()}:
        devices.setdefault(device.type, []).append(device.index or 0)
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(numpy.random.set_state, numpy.random.get_state())
        for generator in {g for g in _attributes(model) if isinstance(g, torch.Generator)}:
            stack.callback(generator.set_state, generator.get_state())
        for kind, indices in devices.items():
            if kind == "mps":  # fork_rng passes a device, which older torch.mps does not accept
                stack.callback(torch.mps.set_rng_state, torch.mps.get_rng_state())
            elif kind != "meta":
                numbers = [] if kind == "cpu" else indices
                stack.enter_context(torch.random.fork_rng(numbers, device_type=kind))
        yield


@contextmanager
def observable(models: Iterable[nn.Module]) -> Iterator[None]:
    """Context without compiled code and fused encoder layers, which hide layers from hooks.

    Raises:
        InputError: the model has compiled parts, and this torch cannot run them uncompiled.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        if any(_is_compiled(module) for model in models for module in model.modules()):
            if not hasattr(torch.compiler, "set_stance"):
                raise InputError(
                    f"model: torch {torch.__version__} cannot run compiled modules uncompiled; "
                    "give the model before torch.compile, or install torch 2.6 or later"
                )
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.callback(torch.backends.mha.set_fastpath_enabled, fused)
        torch.backends.mha.set_fastpath_enabled(False)
        yield


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Context without autocast, under which measurements would lose precision."""
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


def _attributes(model: nn.Module) -> Iterator[Any]:
    return (value for module in model.modules() for value in vars(module).values())


def _differs(buffer: Tensor, value: Tensor) -> bool:
    comparable = buffer.layout is torch.strided and not buffer.is_meta
    return not comparable or not torch.equal(buffer, value)


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
