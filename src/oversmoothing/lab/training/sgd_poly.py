"""SGD with polynomial decay, as EMANet's code trains segmentation networks."""

from dataclasses import dataclass

import torch
from torch import nn

from oversmoothing.checks import above, at_least, of, require
from oversmoothing.lab.training.recipe import Recipe

NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class SGDPoly(Recipe):
    """SGD with momentum and the decay (1 − t/iterations)^power.

    Args:
        lr: learning rate of weights.
        momentum: without Nesterov.
        weight_decay: applied to weights, not to norms and biases.
        bias_factor: learning rate of biases outside of norms, relative to ``lr``.
        norm_bias_factor: the same for biases of norms; EMANet's code: 2.
        head_factor: learning rate of layers that are not pretrained, relative to ``lr``. New
            aggregators inside a pretrained ViT have ``lr``.
        warmup: number of steps of linear growth, from lr/(warmup + 1) in the first step.
        power: exponent of the decay.
        hold: number of steps for which the rate stays constant; EMANet's code: 10.

    Raises:
        InputError: a value is out of range.
    """

    iterations: int = 30000
    batch_size: int = 16
    lr: float = 9e-3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    bias_factor: float = 2.0
    norm_bias_factor: float = 1.0
    head_factor: float = 1.0
    warmup: int = 0
    power: float = 0.9
    hold: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            "trainer",
            momentum=(self.momentum, 0 <= self.momentum < 1, "0 or more, below 1"),
            **at_least(0, **of(self, "weight_decay", "warmup", "power")),
            **at_least(1, hold=self.hold),
            **above(0, **of(self, "bias_factor", "norm_bias_factor", "head_factor")),
        )
        self.require_warmup(self.warmup)

    def factor(self, step: int) -> float:
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        held = step // self.hold * self.hold
        return (1 - held / self.iterations) ** self.power

    def optimizer(self, network: nn.Module) -> torch.optim.SGD:
        """Trains all but ``network.pretrained_parts()`` at ``head_factor`` times ``lr``."""
        old = {id(p) for part in network.pretrained_parts() for p in part.parameters()}
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for module in network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.requires_grad:
                    factor = 1.0 if id(parameter) in old else self.head_factor
                    key = self._group(module, name, factor)
                    groups.setdefault(key, []).append(parameter)
        optimizer = torch.optim.SGD(
            [{"params": p, "lr": lr, "weight_decay": wd} for (lr, wd), p in groups.items()],
            momentum=self.momentum,
            fused=True,
        )
        # torch's fused step needs buffers also for parameters without gradients in the first step.
        for parameter in sum(groups.values(), []):
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimizer

    def _group(self, module: nn.Module, name: str, factor: float) -> tuple[float, float]:
        """Returns learning rate and weight decay of a parameter of ``module``."""
        lr = self.lr * factor
        norm = isinstance(module, NORMS)
        if name == "bias":
            return lr * (self.norm_bias_factor if norm else self.bias_factor), 0.0
        return lr, 0.0 if norm else self.weight_decay
