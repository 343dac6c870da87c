"""Recipes of training: an optimizer with its schedule, as in each paper's code."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from oversmoothing import distributed
from oversmoothing.checks import above, at_least, of, require
from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """Options that all recipes share; subclasses add an optimizer and a schedule.

    Args:
        iterations: number of optimization steps.
        batch_size: examples per step, over all processes.
        accumulate: number of parts into which a batch is split to save memory. The result is
            the same without batch norms, which see one part at a time, and without dropout and
            stochastic depth, which draw other random numbers.
        lr: learning rate.
        precision: fp32, or bf16 for autocast.
        compile: compile the backbone for the training with ``torch.compile``.
        cuda_graph: on a GPU, replay steps from a CUDA graph. Steps run without it if there are
            several processes or parts of a batch, if they are compiled, while an aggregator is not
            ``steady``, or if shapes vary from batch to batch (GLUE).
        workers: processes that load data, per training process; None: one for each core.
        log_every: steps between two log lines.

    Raises:
        InputError: a value is out of range.
    """

    iterations: int = 20000
    batch_size: int = 4
    accumulate: int = 1
    lr: float = 6e-5
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    cuda_graph: bool = True
    workers: int | None = 2
    log_every: int = 50

    def __post_init__(self) -> None:
        counts = of(self, "iterations", "batch_size", "accumulate", "log_every")
        rules = at_least(1, **counts) | at_least(0, workers=self.workers) | above(0, lr=self.lr)
        require("trainer", **rules)
        share = self.batch_size // distributed.world()
        if self.batch_size % distributed.world() or share % self.accumulate:
            raise InputError(
                f"trainer.batch_size: {self.batch_size} examples do not divide among "
                f"{distributed.world()} processes × trainer.accumulate={self.accumulate} parts; "
                f"choose a multiple of {distributed.world() * self.accumulate}"
            )

    def require_warmup(self, warmup: int) -> None:
        """Raises InputError unless the warm-up ends before the training."""
        if warmup >= self.iterations:
            raise InputError(
                f"trainer.warmup: expected below trainer.iterations={self.iterations}, got "
                f"{warmup}; lower it, or train for longer"
            )

    def over(self, examples: int) -> "Recipe":
        """Returns the recipe for this number of training examples, with epochs as iterations."""
        return self

    def factor(self, step: int) -> float:
        """Returns the learning rate at a step, from 0, relative to that of its group."""
        raise NotImplementedError

    def optimizer(self, network: nn.Module) -> torch.optim.Optimizer:
        """Creates the optimizer of the trained parameters, in groups with their own ``lr``."""
        raise NotImplementedError


@dataclass(frozen=True)
class AdamW(Recipe):
    """AdamW; subclasses add a schedule and groups of parameters.

    Args:
        weight_decay: of the parameters that ``groups`` does not exempt.
        betas, eps: of AdamW.
        warmup: number of steps over which the rate grows linearly.
    """

    weight_decay: float = 0.01
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-8
    warmup: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        right = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(
            "trainer",
            betas=(self.betas, right, "two numbers, 0 to below 1"),
            eps=(self.eps, self.eps >= 0, "0 or more"),
            **at_least(0, **of(self, "weight_decay", "warmup")),
        )

    def groups(self, network: nn.Module) -> list[dict]:
        """Returns groups of the trained parameters, each with its learning rate ``lr``."""
        raise NotImplementedError

    def optimizer(self, network: nn.Module) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            self.groups(network),
            betas=tuple(self.betas),
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=True,  # one pass over the parameters
        )

    def decay_groups(
        self, network: nn.Module, decays: Callable[[str, nn.Parameter], bool]
    ) -> list[dict]:
        """Groups the parameters into those with weight decay, by ``decays``, and others."""
        rates = (self.weight_decay, 0.0)
        groups = [{"params": [], "lr": self.lr, "weight_decay": rate} for rate in rates]
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                groups[0 if decays(name, parameter) else 1]["params"].append(parameter)
        return groups


UNDECAYED = ("pos_embed", "cls_token", "dist_token", "reg_token")


@dataclass(frozen=True)
class AdamWCosine(AdamW):
    """AdamW, linear warm-up, then half a cosine from ``lr`` to ``min_lr``.

    As DeiT is trained (Touvron et al., ICML 2021, and its code).

    DeiT changes the rate once per epoch; here it changes every step. As in DeiT, the cosine starts
    at step 0, so the warm-up replaces its beginning. Weight decay is not applied to biases, other
    1-D parameters (norms, scales), position embeddings and prefix tokens.

    Args:
        lr: learning rate after warm-up; DeiT: 5e-4 · batch_size/512.
        warmup_lr: learning rate of the first step.
        min_lr: learning rate at the end of the decay.

    Raises:
        InputError: a value is out of range.
    """

    iterations: int = 375300
    batch_size: int = 1024
    lr: float = 1e-3
    weight_decay: float = 0.05
    warmup: int = 6255
    warmup_lr: float = 1e-6
    min_lr: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        rates, wanted = of(self, "warmup_lr", "min_lr"), f"0 to trainer.lr, {self.lr:g}"
        require("trainer", **{k: (v, 0 <= v <= self.lr, wanted) for k, v in rates.items()})
        self.require_warmup(self.warmup)

    def factor(self, step: int) -> float:
        if step < self.warmup:
            start = self.warmup_lr / self.lr
            return start + (1 - start) * step / self.warmup
        end = self.min_lr / self.lr
        return end + (1 - end) * (1 + math.cos(math.pi * step / self.iterations)) / 2

    def groups(self, network: nn.Module) -> list[dict]:
        return self.decay_groups(network, _decays)


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim > 1 and name.split(".")[-1] not in ("bias", *UNDECAYED)


@dataclass(frozen=True)
class AdamWLinear(AdamW):
    """AdamW; the rate grows linearly over ``warmup`` steps and falls linearly to 0.

    As ContraNorm's scripts fine-tune language models. Weight decay is applied to matrices, not to
    biases and norms.

    Args:
        iterations: number of optimization steps; used if ``epochs`` is None.
        epochs: passes over the training data; None: train for ``iterations``.

    Raises:
        InputError: a value is out of range.
    """

    iterations: int = 1000
    batch_size: int = 32
    lr: float = 2e-5
    epochs: float | None = 5.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is None:
            self.require_warmup(self.warmup)
        elif not self.epochs > 0:
            raise InputError(
                f"trainer.epochs: expected above 0, or null to count trainer.iterations, "
                f"got {self.epochs}"
            )

    def over(self, examples: int) -> "AdamWLinear":
        """Returns the recipe with ``epochs`` converted to ``iterations``.

        Warns if ``iterations`` was set and has no effect.
        """
        if self.epochs is None:
            return self
        if self.iterations != AdamWLinear.iterations:
            warnings.warn(
                f"trainer.iterations={self.iterations} has no effect with trainer.epochs="
                f"{self.epochs:g}; set trainer.epochs=null to train for this number of steps",
                stacklevel=2,
            )
        steps = max(1, round(self.epochs * examples / self.batch_size))
        return dataclasses.replace(self, iterations=steps, epochs=None)

    def factor(self, step: int) -> float:
        if step < self.warmup:
            return step / self.warmup
        return (self.iterations - step) / (self.iterations - self.warmup)

    def groups(self, network: nn.Module) -> list[dict]:
        return self.decay_groups(network, lambda _, parameter: parameter.ndim > 1)


@dataclass(frozen=True)
class AdamWPoly(AdamW):
    """AdamW, linear warm-up, polynomial decay (1 − t/iterations)^power.

    As ToCo is trained (Ru et al., CVPR 2023, and its code). Weight decay is applied to every
    parameter.

    Args:
        lr: learning rate of the backbone after warm-up.
        head_factor: learning rate of layers outside the backbone, relative to ``lr``.
        warmup_ratio: rate of the first step, relative to that after warm-up.
        power: exponent of the decay.

    Raises:
        InputError: a value is out of range.
    """

    head_factor: float = 10.0
    warmup: int = 1500
    warmup_ratio: float = 1e-6
    power: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        known = at_least(0, **of(self, "warmup_ratio", "power"))
        require("trainer", **known, **above(0, head_factor=self.head_factor))
        self.require_warmup(self.warmup)

    def factor(self, step: int) -> float:
        if step < self.warmup:
            return 1 - (1 - step / self.warmup) * (1 - self.warmup_ratio)
        return (1 - step / self.iterations) ** self.power

    def groups(self, network: nn.Module) -> list[dict]:
        return network.parameter_groups(self.lr, self.head_factor)


NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class SGDPoly(Recipe):
    """SGD with momentum and the decay (1 − t/iterations)^power.

    As EMANet's code trains segmentation networks.

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
