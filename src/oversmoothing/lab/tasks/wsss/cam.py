"""Multi-scale class activation maps (CAMs) of the classes in an image's label.

.. math:: M_k = \\sum_s relu(\\max(up(w_k · F(x_s)), flip(up(w_k · F(flip x_s)))))

Each map is then shifted to a minimum of 0 and scaled to a maximum of 1 (ToCo, CVPR 2023, whose
pipeline the centered paper follows). Only the maps of present classes are computed: the image label
would set the others to zero, and an image has two or three of VOC's twenty classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.tasks.wsss.network import Network


class Present(NamedTuple):
    """The classes of every image of a batch, padded to the longest list.

    Shapes: index (B, M) int64, foreground class 0…K−1 or 0 as padding; valid (B, M) bool.
    """

    index: Tensor
    valid: Tensor

    def part(self, images: slice) -> "Present":
        """Returns the classes of some images of the batch."""
        return Present(self.index[images], self.valid[images])


def present_classes(labels: Tensor, most: int | None = None) -> Present:
    """Lists the classes of image-level labels (B, K), in ascending order.

    Args:
        labels: (B, K), 0 or 1.
        most: largest number of classes of an image; None: count it, which synchronises with a GPU.
    """
    M = max(1, int((labels > 0).sum(dim=1).max()) if most is None else most)
    order = (labels > 0).int().argsort(dim=1, descending=True, stable=True)[:, :M]
    valid = labels.gather(1, order) > 0
    return Present(order.masked_fill(~valid, 0), valid)


@torch.no_grad()
def multi_scale_cams(
    network: Network, images: Tensor, present: Present, scales: Sequence[float] = (1.0, 0.5, 1.5)
) -> tuple[Tensor, Tensor]:
    """Computes CAMs of the last and the auxiliary layer in [0, 1], with 0 at padded classes.

    Args:
        network: runs in evaluation mode; the mode of each module is restored.
        images: (B, 3, H, W) in [0, 1].
        present: classes to compute.
        scales: of the input; sides are rounded to whole patches.

    Shapes: -> twice (B, M, H, W).
    """
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        total = sum(_one_scale(network, images, present.index, scale) for scale in scales)
    finally:
        for module, training in modes:
            module.training = training
    M = present.index.shape[1]
    shown = present.valid[:, :, None, None]
    return normalised(total[:, :M]) * shown, normalised(total[:, M:]) * shown


def normalised(maps: Tensor) -> Tensor:
    """Shifts every map to a minimum of 0 and divides it by its maximum + 1e-5."""
    maps = maps - maps.amin(dim=(-2, -1), keepdim=True)
    return maps / (maps.amax(dim=(-2, -1), keepdim=True) + 1e-5)


def _one_scale(network: Network, images: Tensor, index: Tensor, scale: float) -> Tensor:
    """Computes relu of the maximum over image and mirror image: last, auxiliary (B, 2M, H, W)."""
    B, _, H, W = images.shape
    patch = network.backbone.patch
    size = [patch * max(1, round(scale * side / patch)) for side in (H, W)]
    scaled = images if size == [H, W] else F.interpolate(images, size, mode="bilinear")
    maps = torch.cat(network.class_maps(torch.cat([scaled, scaled.flip(-1)])), dim=1)
    K = maps.shape[1] // 2
    both = torch.cat([index, index + K], dim=1).repeat(2, 1)[:, :, None, None]
    maps = maps.gather(1, both.expand(-1, -1, *maps.shape[-2:]))
    maps = F.interpolate(maps.float(), (H, W), mode="bilinear")
    return torch.maximum(maps[:B], maps[B:].flip(-1)).relu_()
