"""Augments image and mask together, as EMANet does (Li et al., ICCV 2019)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oversmoothing.checks import at_least, probability, require
from oversmoothing.lab.data.images.image_set import ImageSet
from oversmoothing.metrics.segmentation import IGNORE

MEAN = (0.485, 0.456, 0.406)  # of ImageNet, RGB; a network that subtracts it sees 0


class JointAugment:
    """Scales, pads to the right and at the bottom, crops and flips, in this order.

    Scaling aligns the corners. Images are interpolated bilinearly without antialiasing, masks by
    nearest neighbour at the same positions, so that both stay aligned at every scale. Colours do
    not change. All random numbers come from torch's global generator.

    Args:
        crop: S, side of the square.
        scales: scale factors to draw from; or the smallest and the largest one.
        discrete: whether ``scales`` lists the factors; if not, one is drawn uniformly between the
            two.
        flip: probability of a mirror image.
        fill: RGB in [0, 1] of the padding; its label is 255.

    Raises:
        InputError: a value is out of range.
    """

    def __init__(
        self,
        crop: int = 513,
        scales: Sequence[float] = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0),
        discrete: bool = True,
        flip: float = 0.5,
        fill: Sequence[float] = MEAN,
    ) -> None:
        shape = "factors above 0" if discrete else "[low, high] with 0 < low <= high"
        in_order = discrete or len(scales) == 2 and scales[0] <= scales[1]
        colour = len(fill) == 3 and 0 <= min(fill) <= max(fill) <= 1
        require(
            "task.augment",
            **at_least(1, crop=crop),
            scales=(list(scales), min(scales, default=0) > 0 and in_order, shape),
            **probability(flip=flip),
            fill=(list(fill), colour, "[red, green, blue], 0 to 1 each"),
        )
        self.crop, self.scales, self.discrete, self.flip = crop, tuple(scales), discrete, flip
        self.fill = torch.tensor(tuple(fill), dtype=torch.float32).view(3, 1, 1)

    def __call__(self, image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Returns a crop and its labels; computes only the part of the scaled image in the crop.

        Shapes: (3, H, W) uint8, (H, W) uint8 -> (3, S, S) float32 in [0, 1], (S, S) uint8.
        """
        _, H, W = image.shape
        S, factor = self.crop, self._factor()
        y, x = (_places(side, max(1, int(side * factor)), S) for side in (H, W))
        pixels = self.fill.repeat(1, S, S)
        labels = torch.full((S, S), IGNORE, dtype=torch.uint8)
        pixels[:, : len(y.nearest), : len(x.nearest)] = _interpolated(image, y, x)
        labels[: len(y.nearest), : len(x.nearest)] = mask[y.nearest[:, None], x.nearest]
        if torch.rand(()).item() < self.flip:
            pixels, labels = pixels.flip(2), labels.flip(1)
        return pixels, labels

    def _factor(self) -> float:
        if self.discrete:
            return self.scales[int(torch.randint(len(self.scales), ()))]
        low, high = self.scales
        return low + (high - low) * torch.rand(()).item()


def masked_crop(data: ImageSet, augment: JointAugment, id: str) -> dict[str, Any]:
    """Reads and augments an image and its mask: ``name``, ``image`` (3, S, S), ``mask`` (S, S).

    Raises:
        InputError: there is no mask, or a file is damaged.
    """
    image, mask = augment(data.image(id), data.mask(id))
    return {"name": id, "image": image, "mask": mask}


class _Places(NamedTuple):
    """Positions of the crop's pixels along one side of the image: n ≤ S of them, each (n,)."""

    low: Tensor  # the image pixel before the position
    high: Tensor  # the image pixel after it
    weight: Tensor  # of ``high``
    nearest: Tensor  # the nearest image pixel


def _places(side: int, scaled: int, crop: int) -> _Places:
    """Draws the position of the crop along one axis, scaled from ``side`` to ``scaled`` pixels."""
    start = int(torch.randint(max(scaled - crop, 0) + 1, ()))
    shown = torch.arange(start, start + min(scaled, crop), dtype=torch.float64)
    place = shown * ((side - 1) / max(scaled - 1, 1))
    low = place.long().clamp_(max=side - 1)
    high, nearest = (i.clamp(max=side - 1) for i in (low + 1, (place + 0.5).long()))
    return _Places(low, high, (place - low).float(), nearest)


def _interpolated(image: Tensor, y: _Places, x: _Places) -> Tensor:
    """Interpolates an image. Shapes: (3, H, W) uint8 -> (3, n, m) float32 in [0, 1]."""
    first = int(x.low[0])
    image = image[:, :, first : int(x.high[-1]) + 1]  # the columns in the crop
    above, below = image[:, y.low].float(), image[:, y.high].float()
    rows = above.lerp_(below, y.weight[:, None])
    left, right = rows[:, :, x.low - first], rows[:, :, x.high - first]
    return left.lerp_(right, x.weight).div_(255)
