"""Repeats random numbers: the dropout of a first call in a second one."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


def random_state(module: nn.Module) -> Tensor | None:
    """The state of the generator that draws a module's dropout; None if it draws nothing."""
    if not module.training or torch.compiler.is_compiling():
        return None
    device = _device(module)
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@contextlib.contextmanager
def replayed(module: nn.Module, state: Tensor | None) -> Iterator[None]:
    """Draws again what came after a state; the generator then goes on as before."""
    after = None if state is None else random_state(module)
    if after is not None:
        _restore(module, state)
    try:
        yield
    finally:
        if after is not None:
            _restore(module, after)


def _restore(module: nn.Module, state: Tensor) -> None:
    device = _device(module)
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def _device(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))
