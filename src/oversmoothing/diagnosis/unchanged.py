"""Restores a model, torch's settings and random numbers after a measurement."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from oversmoothing.errors import InputError


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restores what a forward pass may change: modes, buffers, attributes, random numbers.

    Attributes are restored by reference, so a list that a module changes in place stays changed.
    """
    before = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        with same_random_numbers(model):
            yield
    finally:
        for module, attributes, buffers in before:
            for name in vars(module).keys() - attributes.keys():
                del vars(module)[name]
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for buffer, value in values:
                if _differs(buffer, value):  # writing would invalidate tensors saved by autograd
                    buffer.copy_(value)


@contextmanager
def same_random_numbers(model: nn.Module) -> Iterator[None]:
    """Restores the states of torch's generators, on the CPU and on the devices of a model."""
    devices: dict[str, list[int]] = {"cpu": []}
    for device in {p.device for p in model.parameters()}:
        devices.setdefault(device.type, []).append(device.index or 0)
    with ExitStack() as stack:
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


def _differs(buffer: Tensor, value: Tensor) -> bool:
    comparable = buffer.layout is torch.strided and not buffer.is_meta
    return not comparable or not torch.equal(buffer, value)


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
