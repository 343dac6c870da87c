"""Random numbers and aggregators of each seed, in a module with the networks of several seeds."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from oversmoothing.aggregators.base import Aggregator, Context, checked
from oversmoothing.aggregators.checks import differentiable_once, takes_kernels
from oversmoothing.aggregators.layernorm import LayerNorm

DROPOUT = 1  # number of the stream for dropout; initial weights are drawn with the seed itself


def stream(seed: int, number: int) -> int:
    """Hashes a seed and the number of one of its streams to 32 bits.

    On a CPU, torch's generator ignores the higher bits of a seed.
    """
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0])


class Seeds(nn.Module):
    """The seeds of a batch of networks, each with a random generator for dropout.

    Args:
        seeds: one for each network.
        device: where dropout is drawn; CPU and GPU draw different numbers.

    Attributes:
        ahead: masks drawn in advance for a step.
    """

    def __init__(self, seeds: list[int], device: torch.device) -> None:
        super().__init__()
        self.seeds = list(seeds)
        self.device = device
        self.ahead: list[Tensor] = []
        self.generators = [torch.Generator(device).manual_seed(stream(s, DROPOUT)) for s in seeds]

    def seeded(self) -> Iterator[int]:
        """Yields every seed, with torch's global generator seeded by it; restores the generator."""
        for seed in self.seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                yield seed

    def keep(self, shape: Sequence[int], rate: float | Tensor) -> Tensor:
        """Draws dropout factors (S, *shape): 0 with probability ``rate``, else 1 / (1 − rate)."""
        rate = _broadcast(rate, shape)
        return self.mask(shape, rate) * (1 / (1 - rate))  # not in place, for compiled steps

    def mask(self, shape: Sequence[int], rate: float | Tensor) -> Tensor:
        """Draws (S, *shape): 0 with probability ``rate``, else 1; boolean on a GPU.

        Args:
            shape: of one network's numbers.
            rate: of all networks, or a tensor of S rates. Each number is drawn from 16 random bits,
                so the probability is rounded to a multiple of 2⁻¹⁶.
        """
        if not self.ahead:
            self.draw_ahead([shape], rate)
        return self.ahead.pop(0)

    def draw_ahead(self, shapes: Sequence[Sequence[int]], rate: float | Tensor) -> None:
        """Draws the next masks at once, the same as one by one: so a GPU has one kernel per seed.

        Args:
            shapes, rate: see ``mask``.
        """
        sizes = [math.prod(shape) for shape in shapes]
        words = [-(-n // 4) for n in sizes]
        bits = torch.empty(len(self.seeds), sum(words), dtype=torch.int64, device=self.device)
        for own, generator in zip(bits, self.generators):
            own.random_(-(2**63), None, generator=generator)
        drawn = bits.view(torch.int16)
        rate = _broadcast(rate, (1,))
        least = rate.mul(2**16).round() if torch.is_tensor(rate) else round(rate * 2**16)
        if self.device.type == "cpu":  # where comparing floats is several times as fast
            kept = drawn.to(torch.get_default_dtype()).ge_(least - 2**15)
        else:
            kept = drawn >= least - 2**15
        parts = kept.split([4 * n for n in words], dim=1)
        self.ahead = [own[:, :n].unflatten(1, shape) for own, n, shape in zip(parts, sizes, shapes)]

    def dropout(self, x: Tensor, rate: float | Tensor | None) -> Tensor:
        """Applies dropout unless the rate is None. Shapes: x (S, ...) -> (S, ...)."""
        return x if rate is None else x * self.keep(x.shape[1:], rate)

    def get_extra_state(self) -> list[Tensor]:
        return [generator.get_state() for generator in self.generators]

    def set_extra_state(self, states: list[Tensor]) -> None:
        for generator, state in zip(self.generators, states):
            generator.set_state(state.cpu())


class PerSeed(nn.Module):
    """An aggregator for the tokens (S, N, C) of S networks.

    An aggregator without parameters, buffers and random numbers is applied to all seeds at once.
    Otherwise every seed has its own instance, which in training draws its own numbers from torch's
    global generator: they do not depend on the other seeds.

    Args:
        copies: one aggregator for each seed.
        seeds: one for each copy.
    """

    def __init__(self, copies: Sequence[Aggregator], seeds: Sequence[int]) -> None:
        super().__init__()
        self.seeds = list(seeds)
        self.stateless = stateless(copies[0])
        self.random = draws(copies[0])
        self.copies = nn.ModuleList(copies[:1] if self.stateless else copies)
        self.site = copies[0].site
        self.affine: Affine | None = None  # of LayerNorms in this step

    def forward(self, *args: Tensor | Context) -> Tensor:
        *tensors, context = args
        if self.stateless:
            return checked(self.copies[0], tensors[0], self.copies[0](*tensors, context))
        if type(self.copies[0]) is LayerNorm and tensors[0].dim() == 3:
            return of_seeds(self.copies, *tensors, affine=self.affine)
        contexts = _of_each(context, len(self.copies))
        seeds = zip(self._seeded(tensors[0].device), *tensors, contexts, strict=True)
        return torch.stack([checked(copy, own[0], copy(*own)) for copy, *own in seeds])

    def renew(self) -> None:
        """Stacks the parameters of LayerNorms for all calls of a step."""
        self.affine = None  # frees the last step's gradient nodes, which belong to its stream
        if type(self.copies[0]) is LayerNorm:
            self.affine = None if torch.compiler.is_compiling() else affine_of(self.copies)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "affine": None}  # torch copies no tensor with a history

    def _seeded(self, device: torch.device) -> Iterator[Aggregator]:
        """Yields every copy, with torch's global generator seeded for it if it draws numbers."""
        if not (self.random and self.training) or torch.compiler.is_compiling():
            yield from self.copies
            return
        call = int(torch.randint(2**31, ()))  # the same for any number of seeds
        devices = [device] if device.type == "cuda" else []
        for copy, seed in zip(self.copies, self.seeds, strict=True):
            with torch.random.fork_rng(devices):
                torch.manual_seed(stream(seed, call))
                yield copy


def _of_each(context: Context, seeds: int) -> list[Context]:
    """Returns the context of each seed; row sums are (S, N, 1) if edges were dropped."""
    if context.row_sum is None or context.row_sum.dim() == 2:
        return [context] * seeds
    return [replace(context, row_sum=own) for own in context.row_sum]


def _broadcast(rate: float | Tensor, shape: Sequence[int]) -> float | Tensor:
    """Reshapes several rates to (S, 1, …), which broadcasts to (S, *shape)."""
    return rate.view(-1, *(1 for _ in shape)) if torch.is_tensor(rate) else rate


def stateless(aggregator: Aggregator) -> bool:
    """Whether seeds can share an instance: it has no parameters, buffers or random numbers."""
    held = any(True for _ in (*aggregator.parameters(), *aggregator.buffers()))
    return not (held or draws(aggregator))


def draws(aggregator: Aggregator) -> bool:
    """Whether an aggregator draws random numbers in training, as far as is known."""
    return aggregator.draws or any(isinstance(m, _DropoutNd) for m in aggregator.modules())


Affine = tuple[Tensor | None, Tensor | None]
WIDEST = 1024  # channels of a LayerNorm that a program of a GPU holds


def affine_of(norms: Sequence[LayerNorm]) -> Affine:
    """Returns scales and shifts of S norms, (S, 1, C) each; None for norms without."""
    each = [own.norm for own in norms]
    if each[0].weight is None:
        return None, None
    stacked = torch.stack([*(own.weight for own in each), *(own.bias for own in each)])
    scale, shift = stacked.view(2, len(each), 1, -1)
    return scale, shift


def of_seeds(norms: Sequence[LayerNorm], x: Tensor, affine: Affine | None = None) -> Tensor:
    """Applies the LayerNorm of each of S seeds.

    Args:
        norms: one for each seed; they differ only in the learned scale and shift.
        affine: what ``affine_of`` returns for them; None: call it.

    Shapes: x (S, N, C) -> (S, N, C).
    """
    eps, (scale, shift) = norms[0].norm.eps, affine or affine_of(norms)
    if takes_kernels(x) and x.shape[-1] <= WIDEST:
        from oversmoothing.lab.backbones.kernels import LayerNorms

        return LayerNorms.apply(x, eps, scale, shift)
    if x.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        return _OfSeeds.apply(x, eps, scale, shift)
    normed = F.layer_norm(x, x.shape[-1:], eps=eps)
    return normed if scale is None else torch.addcmul(shift, normed, scale)


class _OfSeeds(torch.autograd.Function):
    """The LayerNorms of S seeds as matrix products and sums, faster on a CPU if C is small.

    Args:
        x: (S, N, C).
        scale, shift: (S, 1, C), or None.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, eps: float, scale: Tensor | None, shift: Tensor | None
    ) -> Tensor:
        y, factor = _normed(x, eps)
        ctx.save_for_backward(y, scale, factor)
        return y if scale is None else torch.addcmul(shift, y, scale)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        y, scale, factor = ctx.saved_tensors
        grad, of_affine = grad.contiguous(), (None, None)
        if scale is not None:
            scaled = grad * y
            of_affine = scaled.sum(dim=1, keepdim=True), grad.sum(dim=1, keepdim=True)
            grad = torch.mul(grad, scale, out=scaled)
        mean, one = torch.zeros_like(factor), torch.ones_like(factor)  # y is normalised already
        args = grad, y, y.shape[-1:], mean, one, None, None, [True, False, False]
        dx = torch.ops.aten.native_layer_norm_backward(*args)[0]
        return dx.mul_(factor), None, *of_affine


def _normed(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Returns normalised tokens, and the factor of each."""
    C = x.shape[-1]
    y = x - (x @ x.new_full((C,), 1 / C))[..., None]
    norm = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
    factor = norm.square_().div_(C).add_(eps).rsqrt_()
    return y.mul_(factor), factor
