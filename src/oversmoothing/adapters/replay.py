"""Repeats random numbers: the dropout of a first call in a second one."""

import contextlib
from collections.abc import Iterator
from types import ModuleType

import torch
from torch import Tensor, nn


def random_state(module: nn.Module) -> Tensor | None:
    """The state of the generator that draws a module's dropout; None if it draws nothing."""
    if not module.training or torch.compiler.is_compiling():
        return None
    return _generator(module).get_rng_state()


@contextlib.contextmanager
def replayed(module: nn.Module, state: Tensor | None) -> Iterator[None]:
    """Draws again what came after a state; the generator then goes on as before."""
    if state is None:
        yield
        return
    generator = _generator(module)
    after = generator.get_rng_state()
    generator.set_rng_state(state)
    try:
        yield
    finally:
        generator.set_rng_state(after)


def _generator(module: nn.Module) -> ModuleType:
    """``torch``, or ``torch.cuda``, ``torch.mps``, … with the device's own generator."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    own = torch.get_device_module(device)
    return own if hasattr(own, "get_rng_state") and device.type != "cpu" else torch
