"""Adam for a batch of networks, each with its own learning rate and weight decay."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oversmoothing.lab.backbones.per_seed import PerSeed

BETAS, EPS = (0.9, 0.999), 1e-8
BLOCK = 2**17  # size of blocks in numbers; a block stays in the cache of a core


class Rates(NamedTuple):
    """Learning rate and weight decay of one parameter, broadcastable to it."""

    lr: Tensor
    decay: Tensor


class StackedAdam:
    """Adam with L2 penalty (Kingma, Ba, ICLR 2015), as ``torch.optim.Adam`` for each network.

    Args:
        parameters: by name.
        rates: of each parameter. A parameter of S networks has rates (S, 1, …).
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], rates: Mapping[str, Rates]) -> None:
        self.parameters, self.rates, self.steps = dict(parameters), dict(rates), 0
        self.first = {name: torch.zeros_like(p) for name, p in parameters.items()}
        self.second = {name: torch.zeros_like(p) for name, p in parameters.items()}

    def zero_grad(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Makes one step with the gradients; parameters without a gradient do not change."""
        self.steps += 1
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                moments = self.first[name], self.second[name]
                for block in _blocks(parameter, parameter.grad, *moments, *self.rates[name]):
                    _update(*block, self.steps)

    def state_dict(self) -> dict[str, Any]:
        return {"first": self.first, "second": self.second, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        for name in self.parameters:
            self.first[name].copy_(state["first"][name])
            self.second[name].copy_(state["second"][name])


def rates_of(model: nn.Module, lr: Tensor, decays: Mapping[str, Tensor]) -> dict[str, Rates]:
    """Returns the rates of every parameter of a batch of networks.

    Args:
        model: the networks.
        lr: learning rate of each network, (S,).
        decays: weight decay of each network by the name of the parameter, (S,).
    """
    owners = dict(owned(model))
    rates = {}
    for name, parameter in model.named_parameters():
        if name in owners:
            rates[name] = Rates(lr[owners[name]], decays[name][owners[name]])
        else:
            shape = (-1, *(1 for _ in parameter.shape[1:]))
            rates[name] = Rates(lr.view(shape), decays[name].view(shape))
    return rates


def owned(model: nn.Module) -> Iterator[tuple[str, int]]:
    """Yields the names in a model's state that belong to one network, with the network's number."""
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, PerSeed) and not module.stateless:
            for i, copy in enumerate(module.copies):
                names = copy.state_dict(keep_vars=True)
                yield from ((f"{path}.copies.{i}.{name}", i) for name in names)


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Splits a parameter of several networks and its optimizer state into blocks."""
    parameter, lr = tensors[0], tensors[-1]
    if lr.dim() == 0 or parameter.numel() <= BLOCK:
        return iter([tensors])
    size = max(1, BLOCK * len(parameter) // parameter.numel())
    return zip(*(tensor.split(size) for tensor in tensors))


def _update(
    p: Tensor, grad: Tensor, first: Tensor, second: Tensor, lr: Tensor, decay: Tensor, t: int
) -> None:
    grad = torch.addcmul(grad, decay, p)
    first.lerp_(grad, 1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
    root = second.sqrt().div_((1 - BETAS[1] ** t) ** 0.5).add_(EPS)
    p.addcdiv_(lr * first, root, value=-1 / (1 - BETAS[0] ** t))
