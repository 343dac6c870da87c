"""Repeats random numbers: the dropout of a first call in a second one."""

import contextlib
from collections.abc import Iterator
from types import ModuleType

import torch
from torch import Tensor, nn


def random_state(module: nn.Module, device: torch.device) -> Tensor | None:
    """The state of the generator that draws a module's dropout; None if it draws nothing."""
    if not module.training or torch.compiler.is_compiling():
        return None
    return _generator(device).get_rng_state()


@contextlib.contextmanager
def replayed(device: torch.device, state: Tensor | None) -> Iterator[None]:
    """Replays the random numbers drawn after ``state``, then restores the generator."""
    if state is None:
        yield
        return
    generator = _generator(device)
    after = generator.get_rng_state()
    generator.set_rng_state(state)
    try:
        yield
    finally:
        generator.set_rng_state(after)


def _generator(device: torch.device) -> ModuleType:
    """``torch``, or ``torch.cuda``, ``torch.mps``, … with the device's own generator."""
    own = torch.get_device_module(device)
    return own if hasattr(own, "get_rng_state") and device.type != "cpu" else torch
