"""Repeats random numbers, so that a second call has the dropout of the first."""

import contextlib
from collections.abc import Iterator
from types import ModuleType

import torch
from torch import Tensor, nn


def random_state(module: nn.Module, device: torch.device) -> Tensor | None:
    """Returns the state of the generator for a module's dropout; None if it draws no numbers."""
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
    """Returns the module with a device's generator: ``torch``, ``torch.cuda``, ``torch.mps``."""
    own = torch.get_device_module(device)
    return own if hasattr(own, "get_rng_state") and device.type != "cpu" else torch
