"""Skip connections: a layer also gets features of earlier layers.

With X_l, the input of layer l, H_l, what it mixes, and X_1, the input of the first layer of this
width:

- residual: H_l + s H_{l−1}, or over several layers (He et al., ECCV 2016; DeeperGCN, Li et al.,
  2020, arXiv:2006.07739), or H_l + s X_l (He et al., CVPR 2016).
- initial residual and identity map (GCNII, Chen et al., ICML 2020, Eq. 5):

  .. math:: z = (1 − α) H_l + α X_1, \\quad (1 − β_l) z + β_l z W, \\quad β_l = \\log(λ/l + 1)

- jumping knowledge (Xu et al., ICML 2018): the last layer gets the maximum or the mean of
  X_1, …, X_L in each channel, or W [X_1, …, X_L] with a learned W.
"""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import PLAIN, After, Context, Tokenwise
from oversmoothing.aggregators.checks import check_counts, check_finite, check_shares, number
from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError

Combination = Literal["max", "mean", "cat"]


class Connection(Tokenwise):
    """Base of aggregators that read the inputs of layers."""

    reads_inputs = True


class Residual(Connection, After):
    """Adds what the layer before returned, x + s H_{l−1}, or in every k-th layer H_{l−k}.

    The first layer gets its input: H_0 = X_1.

    Args:
        scale: s.
        interval: k.
        pre_activation: false: add the input of the layer (of k layers), after activation and
            dropout. Dropout between the layers then acts on the connection once for each layer.

    Raises:
        InputError: the scale is not finite, the interval is below 1, or what would be added does
            not have the shape of x.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, scale: float = 1.0, interval: int = 1, pre_activation: bool = True) -> None:
        super().__init__()
        check_finite("scale", scale)
        check_counts(interval=interval)
        self.scale, self.interval, self.pre_activation = scale, interval, pre_activation

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        earlier = inputs_like(x, context)
        if self.pre_activation:
            earlier = [earlier[0], *context.outputs]
        if context.layer % self.interval or len(earlier) < self.interval:
            return x
        if (added := earlier[-self.interval]).shape != x.shape:
            raise InputError(
                f"aggregator: a residual cannot add outputs {tuple(added.shape)} to "
                f"{tuple(x.shape)}; choose layers that keep the number of channels"
            )
        return x + self.scale * added


class InitialResidual(Connection, After):
    """Mixes in the input of the first layer (GCNII); W is learned beside the layer's weights.

    Args:
        dim: channels C.
        alpha: α, the share of the first layer's input. GCNII takes 0.1, in layers without weights
            but W. In layers that have their own, 0.1 did not train GraphSAGE and GAT of 8 layers on
            Cora, and 0.5 did (results/tables/graphs_sage_gat.md).
        lam: λ of β_l = log(λ/l + 1); 0: no identity map, and no W.

    Raises:
        InputError: dim is below 1, α is not from 0 to 1, λ is negative or infinite, or no input of
            a layer has the shape of x.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, dim: int, alpha: float = 0.5, lam: float = 0.5) -> None:
        super().__init__()
        check_counts(dim=dim)
        check_shares(alpha=alpha)
        if not 0 <= number(lam) < math.inf:
            raise InputError(f"aggregator.lam: expected 0 or more, got {lam!r}")
        self.alpha, self.lam = alpha, lam
        self.linear = nn.Linear(dim, dim, bias=False) if lam else None

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        z = _between(x, inputs_like(x, context)[0], self.alpha)
        if self.linear is None:
            return z
        return _between(z, self.linear(z), math.log(self.lam / context.layer + 1))


class Jumping(Connection):
    """Gives the last of several layers the inputs of all of them (JKNet), combined in each channel.

    Args:
        mode: ``max``, ``mean``, or ``cat``: all of them through a linear layer back to C channels,
            which at the start returns the last input, as the network without the connection does.
        channels: C; needed with ``cat``, where oversmoothing.apply gives it.
        layers: L; needed with ``cat``, where oversmoothing.apply gives it.

    Raises:
        InputError: the mode is unknown, a size is missing, or the inputs do not have these sizes.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    site = "before"

    def __init__(self, mode: Combination = "max", channels: int = 0, layers: int = 0) -> None:
        super().__init__()
        check_choice("aggregator.mode", mode, get_args(Combination))
        self.mode = mode
        if mode == "cat":
            check_counts(channels=channels, layers=layers)
            self.linear = nn.Linear(layers * channels, channels, bias=False)
            with torch.no_grad():
                self.linear.weight.zero_()[:, -channels:].fill_diagonal_(1)

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        every = inputs_like(x, context)
        if self.mode == "cat":
            if len(every) * x.shape[-1] != self.linear.in_features:
                raise InputError(
                    f"aggregator: {len(every)} layers have an input {tuple(x.shape)}, and jumping "
                    f"knowledge was built for {self.linear.in_features} channels in all; call the "
                    "whole model"
                )
            return self.linear(torch.cat(every, dim=-1))
        stacked = torch.stack(every)
        return stacked.amax(dim=0) if self.mode == "max" else stacked.mean(dim=0)


def _between(x: Tensor, y: Tensor, share: float) -> Tensor:
    """Returns (1 − share) x + share · y; autocast may have given x and y different types."""
    wide = torch.promote_types(x.dtype, y.dtype)
    return torch.lerp(x.to(wide), y.to(wide), share)


def inputs_like(x: Tensor, context: Context) -> list[Tensor]:
    """Returns the inputs of the layers so far that have the shape of x.

    Raises:
        InputError: there is none.
    """
    found = [given for given in context.inputs if given.shape == x.shape]
    if not found:
        raise InputError(
            f"aggregator: no layer so far has an input {tuple(x.shape)} to connect to; skip "
            "connections act where oversmoothing.apply puts them, at graph convolutions or at a "
            "pattern of module names, in layers that keep the number of channels"
        )
    return found
