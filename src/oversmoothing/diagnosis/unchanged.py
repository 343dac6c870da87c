"""Leaves a model and torch's random numbers as they were."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restores what a forward pass may change: modes, buffers, attributes, random numbers.

    Attributes are restored by reference, so a list that a module changes in place stays changed.
    """
    devices = {x.device for x in (*model.parameters(), *model.buffers())}
    before = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        with ExitStack() as stack:
            for kind in {device.type for device in devices} - {"meta"}:
                numbers = [d.index for d in devices if d.type == kind and kind != "cpu"]
                stack.enter_context(torch.random.fork_rng(numbers, device_type=kind))
            yield
    finally:
        for module, attributes, buffers in before:
            vars(module).update(attributes)
            for name in vars(module).keys() - attributes.keys():
                del vars(module)[name]
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for buffer, value in values:
                buffer.copy_(value)
