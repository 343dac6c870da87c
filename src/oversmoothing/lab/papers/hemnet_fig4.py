"""HEMNet's Figure 4: attention maps γ, features X and reconstructions X̃ by iteration.

    oversmoothing figure hem_fig4
    oversmoothing figure hem_fig4 2007_000042 --run outputs/segmentation-voc_subset-em-…

Without an id, it shows the first image of the validation list with three labels or more. The image
is scaled as in the run's single-scale evaluation. Of the bases and channels, it shows those whose
maps vary most over the image: γ after the last iteration, and X (Song, Kim, Shim, AAAI 2021).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import ImageSet, to_array, to_float
from oversmoothing.lab.data.voc import IGNORE
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.grid import coloured
from oversmoothing.lab.drawing.panels import STYLE
from oversmoothing.lab.launch import trained
from oversmoothing.lab.launch.script import DEVICE, SEED, whole
from oversmoothing.lab.papers import figure_parser
from oversmoothing.lab.papers.hemnet_fig3 import Recorded, em_of, recording
from oversmoothing.lab.tasks.segmentation_network import Segmenter, fitting, whole_image

RUN = ["experiment=seg_voc_subset", "aggregator=hem"]
CELL, HEAD = 1.5, 0.22  # inches
ROBUST = (0.01, 0.99)  # quantiles of X and X̃ that the colours span


def main(argv: list[str]) -> int:
    """Writes ``hem_fig4.png``."""
    parser = figure_parser(__doc__)
    parser.add_argument("image", nargs="?", help="id of the run's data set")
    parser.add_argument("--run", help="of task=segmentation with EM; default: the subset's, HEM")
    parser.add_argument("--seed", type=SEED, default=0, help="default: 0")
    parser.add_argument("--number", type=whole(), default=3, help="bases, and channels, to show")
    parser.add_argument("--device", default="auto", help=DEVICE)
    parser.add_argument("--stem", type=Path, help="path of the figure, without .png")
    options = parser.parse_args(argv)
    folder = options.run or trained.of_command(RUN, options.seed)
    run = trained.load(folder, options.seed, options.device, ("segmentation",))
    data = run.data
    id = options.image or _several_labels(data)
    if id not in data.image_files:
        raise InputError(f"{id}: no image of {data.name}; expected ids such as {data.val[0]}")
    image, truth = _scaled(data, id, run.config.task.evaluation.size)
    place = next(run.network.parameters()).device
    maps = maps_of(run.network, image.to(place), options.number)
    pixels = to_array((image * 255).round().byte())
    labels = None if truth is None else truth.numpy()
    stem = options.stem or options.target / "figures/hem_fig4"
    paths = save(figure4(pixels, labels, maps), stem, options.pdf)
    print(*paths, f"image: {id}", sep="\n")
    for t, (entropy, explained) in enumerate(zip(maps.entropy, maps.explained), start=1):
        print(f"iteration {t}: entropy of γ {entropy:.3f} of ln K, X̃ explains {explained:.1%} of X")
    return 0


def _several_labels(data: ImageSet) -> str:
    """Returns the first validation image with three labels or more, or else the first one."""
    for id in data.val:
        if id in data.mask_files and len(set(data.mask(id).unique().tolist()) - {IGNORE}) >= 3:
            return id
    return data.val[0]


def _scaled(data: ImageSet, id: str, longer: int | None) -> tuple[Tensor, Tensor | None]:
    """Returns an image and its truth, scaled. Shapes: (3, H, W) in [0, 1], (H, W) uint8."""
    image = to_float(data.image(id))
    truth = data.mask(id) if id in data.mask_files else None
    factor = longer / max(image.shape[1:]) if longer else 1.0
    size = [max(1, int(side * factor + 1e-6)) for side in image.shape[1:]]
    image = F.interpolate(image[None], size, mode="bilinear", align_corners=True)[0]
    if truth is not None:
        truth = F.interpolate(truth[None, None].float(), size, mode="nearest")[0, 0].byte()
    return image, truth


@dataclass(frozen=True)
class Maps:
    """The maps of one image by iteration.

    Args:
        mask: predicted labels, (H, W) uint8.
        bases: numbers of the n bases that are shown.
        channels: numbers of the n channels that are shown.
        gamma: responsibilities of these bases after each iteration, (T, n, H, W).
        x: these channels of X, (n, H, W).
        x_tilde: reconstructions γμ of these channels after each iteration, (T, n, H, W).
        entropy: mean entropy of the tokens' γ by iteration, divided by ln K; it is 0 if each token
            has a single basis.
        explained: share of X's variance over the image that X̃ explains, by iteration.
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
    """Records the maps of an image in a network that is in evaluation mode.

    Args:
        image: (3, H, W) in [0, 1], on the network's device.
        number: number n of bases, and of channels.

    Raises:
        InputError: the network has no EM, or fewer bases or channels than ``number``.
    """
    em = em_of(network)
    if not 1 <= number <= min(em.bases.shape):
        raise InputError(
            f"number of maps: expected 1 to {min(em.bases.shape)} bases and as many channels, "
            f"got {number}"
        )
    with recording(em) as record:
        mask = whole_image(network, image).argmax(0).byte()
    size = image.shape[-2:]
    x, gamma = record[0].x_n[0], torch.stack([step.gamma[0] for step in record])
    x_tilde = torch.stack([step.gamma[0] @ step.mu[0] for step in record])  # (T, N, C)
    spread = (x - x.mean(dim=0)).square().sum()
    bases, channels = (m.var(dim=0).topk(number).indices.tolist() for m in (gamma[-1], x))
    return Maps(
        mask=mask.cpu().numpy(),
        bases=tuple(bases),
        channels=tuple(channels),
        gamma=_enlarged(gamma[..., bases], network, size),
        x=_enlarged(x[None, :, channels], network, size)[0],
        x_tilde=_enlarged(x_tilde[..., channels], network, size),
        entropy=tuple(_entropy(step) for step in record),
        explained=tuple((1 - (x - x_tilde).square().sum((1, 2)) / spread).tolist()),
    )


def _entropy(step: Recorded) -> float:
    return torch.special.entr(step.gamma[0]).sum(-1).mean().item() / math.log(step.gamma.shape[-1])


def _enlarged(tokens: Tensor, network: Segmenter, size: Sequence[int]) -> np.ndarray:
    """Upsamples maps to the image like logits, without the padding.

    Shapes: (T, N, M) -> (T, M, H, W).
    """
    padded = [fitting(network.backbone, side) for side in size]
    h, w = (math.ceil(side / network.backbone.output_stride) for side in padded)
    maps = tokens.mT.unflatten(-1, (h, w))
    maps = F.interpolate(maps, padded, mode="bilinear", align_corners=True)
    return maps[..., : size[0], : size[1]].cpu().numpy()


@matplotlib.rc_context(STYLE)
def figure4(image: np.ndarray, truth: np.ndarray | None, maps: Maps) -> Figure:
    """Draws image, label, prediction and X in the first row, then γ and X̃, one row per iteration.

    The maps of one basis share their colours over the iterations, which start at 0. So do those of
    one channel of X̃, whose range is smaller than that of X.

    Shapes: image (H, W, 3) uint8, truth (H, W) uint8.
    """
    T, n = maps.gamma.shape[:2]
    H, W = image.shape[:2]
    columns = n + max(n, 3)
    size = (CELL * columns, (CELL * H / W + HEAD) * (T + 1))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(T + 1, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    _show(axes[0, 0], "image", image)
    if truth is not None:
        _show(axes[0, 1], "label", coloured(truth))
    _show(axes[0, 2], "prediction", coloured(maps.mask))
    right = axes[:, max(n, 3) :]
    for j in range(n):
        span = 0.0, maps.gamma[:, j].max()
        span_x, span_x_tilde = (np.quantile(of, ROBUST) for of in (maps.x[j], maps.x_tilde[:, j]))
        _show(right[0, j], f"X, channel {maps.channels[j]}", maps.x[j], *span_x)
        for t in range(T):
            gamma = f"γ({t + 1}), basis {maps.bases[j]}"
            _show(axes[1 + t, j], gamma, maps.gamma[t, j], *span)
            _show(right[1 + t, j], f"X̃({t + 1})", maps.x_tilde[t, j], *span_x_tilde)
    return figure


def _show(axis: Axes, title: str, picture: np.ndarray, *span: float) -> None:
    colours = dict(zip(("vmin", "vmax"), span), cmap="viridis") if span else {}
    axis.imshow(picture, interpolation="auto", **colours)
    axis.set_title(title, fontsize=8, pad=3)
