"""Attention maps γ, features X and reconstructions X̃ by iteration: HEMNet's Figure 4.

Song, Kim, Shim, AAAI 2021. Bases and channels are those whose maps vary most over the image: γ
after the last iteration, and X.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from oversmoothing.aggregators.em_iteration import Iteration
from oversmoothing.errors import InputError
from oversmoothing.papers.em_gradients import em_of
from oversmoothing.tasks.segmentation.network import Segmenter
from oversmoothing.tasks.segmentation.whole import fitting, whole_image
from oversmoothing.tasks.wsss.panels import coloured
from oversmoothing.tasks.wsss.pictures import STYLE

CELL, HEAD = 1.5, 0.22  # inches
ROBUST = (0.01, 0.99)  # quantiles of X and X̃ that the colours span


@dataclass(frozen=True)
class Maps:
    """One image through the iterations.

    Args:
        mask: predicted labels, (H, W) uint8.
        bases: numbers of the n bases that are shown.
        channels: of the n channels.
        gamma: responsibilities of the bases after each iteration, (T, n, H, W).
        x: the channels, (n, H, W).
        x_tilde: their reconstructions γμ after each iteration, (T, n, H, W).
        entropy: of the tokens' γ over ln K, mean, by iteration; 0: each token has one basis.
        explained: share of X's variance over the image that X̃ has, by iteration.
    """

    mask: np.ndarray
    bases: tuple[int, ...]
    channels: tuple[int, ...]
    gamma: np.ndarray
    x: np.ndarray
    x_tilde: np.ndarray
    entropy: tuple[float, ...]
    explained: tuple[float, ...]


@torch.no_grad()
def maps_of(network: Segmenter, image: Tensor, number: int = 3) -> Maps:
    """Looks at an image through a network in evaluation mode.

    Args:
        image: (3, H, W) in [0, 1], on the network's device.
        number: n of bases and of channels.

    Raises:
        InputError: no EM in the network, or more maps than it has bases or channels.
    """
    em = em_of(network)
    if not 1 <= number <= min(em.bases.shape):
        raise InputError(
            f"number of maps: expected 1 to {min(em.bases.shape)}, of bases and channels each, "
            f"got {number}"
        )
    with em.recording() as record:
        mask = whole_image(network, image).argmax(0).byte()
    size = image.shape[-2:]
    x, gamma = record[0].x_n[0], torch.stack([step.gamma[0] for step in record])
    x_tilde = torch.stack([step.gamma[0] @ step.mu[0] for step in record])  # (T, N, C)
    bases, channels = (_most_varied(tokens, number) for tokens in (gamma[-1], x))
    return Maps(
        mask=mask.cpu().numpy(),
        bases=tuple(bases),
        channels=tuple(channels),
        gamma=_enlarged(gamma[..., bases], network, size),
        x=_enlarged(x[None, :, channels], network, size)[0],
        x_tilde=_enlarged(x_tilde[..., channels], network, size),
        entropy=tuple(_entropy(step) for step in record),
        explained=tuple((1 - (x - x_tilde).square().sum((1, 2)) / _spread(x)).tolist()),
    )


def _most_varied(tokens: Tensor, number: int) -> list[int]:
    """Columns of (N, M)."""
    return tokens.var(dim=0).topk(number).indices.tolist()


def _spread(x: Tensor) -> Tensor:
    return (x - x.mean(dim=0)).square().sum()


def _entropy(step: Iteration) -> float:
    return torch.special.entr(step.gamma[0]).sum(-1).mean().item() / math.log(step.gamma.shape[-1])


def _enlarged(tokens: Tensor, network: Segmenter, size: Sequence[int]) -> np.ndarray:
    """On the image's pixels, as logits are; padding is cut. Shapes: (T, N, M) -> (T, M, H, W)."""
    padded = [fitting(network.backbone, side) for side in size]
    h, w = (math.ceil(side / network.backbone.output_stride) for side in padded)
    maps = tokens.mT.unflatten(-1, (h, w))
    maps = F.interpolate(maps, padded, mode="bilinear", align_corners=True)
    return maps[..., : size[0], : size[1]].cpu().numpy()


def figure4(image: np.ndarray, truth: np.ndarray | None, maps: Maps) -> Figure:
    """Above: image, label, prediction, and X; below: γ and X̃, a row an iteration.

    The maps of one basis share their colours over the iterations, from 0; so do those of one
    channel of X̃, whose range is smaller than that of X.

    Shapes: image (H, W, 3) uint8, truth (H, W) uint8.
    """
    T, n = maps.gamma.shape[:2]
    H, W = image.shape[:2]
    top = [("image", image), ("label", None if truth is None else coloured(truth))]
    top.append(("prediction", coloured(maps.mask)))
    columns = n + max(n, 3)
    with matplotlib.rc_context(STYLE):
        size = (CELL * columns, (CELL * H / W + HEAD) * (T + 1))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(T + 1, columns, squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for axis, (title, picture) in zip(axes[0], top):
            _show(axis, title, picture)
        right = axes[:, max(n, 3) :]
        for j in range(n):
            spans = [(0.0, maps.gamma[:, j].max()), _span(maps.x[j]), _span(maps.x_tilde[:, j])]
            _show(right[0, j], f"X, channel {maps.channels[j]}", maps.x[j], spans[1])
            for t in range(T):
                gamma = f"γ({t + 1}), basis {maps.bases[j]}"
                _show(axes[1 + t, j], gamma, maps.gamma[t, j], spans[0])
                _show(right[1 + t, j], f"X̃({t + 1})", maps.x_tilde[t, j], spans[2])
    return figure


def _span(values: np.ndarray) -> tuple[float, float]:
    return tuple(np.quantile(values, ROBUST))


def _show(
    axis: Axes, title: str, picture: np.ndarray | None, span: tuple[float, float] | None = None
) -> None:
    if picture is None:
        return
    colours = {"cmap": "viridis", "vmin": span[0], "vmax": span[1]} if span else {}
    axis.imshow(picture, interpolation="auto", **colours)
    axis.set_title(title, fontsize=8, pad=3)
