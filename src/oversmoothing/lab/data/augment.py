"""Augments images with their masks (EMANet, Li et al., ICCV 2019) or labels (ToCo, CVPR 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor, nn

from oversmoothing.checks import at_least, probability, require
from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import IGNORE, ImageSet, read_pil, to_tensor

MEAN = (0.485, 0.456, 0.406)  # of ImageNet, RGB; a network that subtracts it sees 0


class JointAugment:
    """Scales, pads (right and bottom), crops and flips an image and its mask, in this order.

    It follows EMANet (Li et al., ICCV 2019).

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


class Augment:
    """Scales, flips, crops, jitters colours, turns grey and blurs, in this order.

    It follows ToCo (Ru et al., CVPR 2023), whose error is an option.

    A scaled image that is smaller than the crop is placed at a random offset on black. Changes of
    colour also apply to the black. All random numbers come from torch's global generator.

    Args:
        crop: S, side of the square.
        scale: smallest and largest scale factor; it is drawn uniformly, the resize is bilinear.
        flip: probability of a mirror image.
        jitter: strengths of brightness, contrast, saturation and hue.
        jitter_p: probability of the jitter.
        grey: probability of a grey image.
        blur: probability of a Gaussian blur of standard deviation U[0.1, 2] pixels.

    Raises:
        InputError: a value is out of range.
    """

    def __init__(
        self,
        crop: int = 448,
        scale: Sequence[float] = (0.5, 2.0),
        flip: float = 0.5,
        jitter: Sequence[float] = (0.4, 0.4, 0.2, 0.1),
        jitter_p: float = 0.8,
        grey: float = 0.2,
        blur: float = 1.0,
    ) -> None:
        in_order = len(scale) == 2 and 0 < scale[0] <= scale[1]
        strengths = len(jitter) == 4 and min(jitter) >= 0 and jitter[3] <= 0.5
        four = "[brightness, contrast, saturation, hue], 0 or more each, hue at most 0.5"
        require(
            "task.augment",
            **at_least(1, crop=crop),
            scale=(list(scale), in_order, "[low, high] with 0 < low <= high"),
            jitter=(list(jitter), strengths, four),
            **probability(flip=flip, jitter_p=jitter_p, grey=grey, blur=blur),
        )
        self.crop, self.scale = crop, tuple(scale)
        self.flip, self.jitter_p, self.grey, self.blur = flip, jitter_p, grey, blur
        self.strengths = tuple(jitter)

    @cached_property
    def jitter(self) -> nn.Module:
        """Changes the colours of an image at random."""
        from torchvision.transforms import v2  # takes seconds

        return v2.ColorJitter(*self.strengths)

    def __call__(self, image: Image.Image) -> tuple[Tensor, Tensor]:
        """Returns a crop and its box, the part of the crop that shows the image.

        The box is (row0, row1, col0, col1), half-open.

        Shapes: RGB image -> (3, S, S) uint8, (4,) int64.
        """
        crop, box = self._cropped(image)
        return to_tensor(self._recoloured(crop)), torch.tensor(box)

    def _cropped(self, image: Image.Image) -> tuple[Image.Image, list[int]]:
        """Scales, flips and crops; computes only the part of the scaled image in the crop."""
        factor = _uniform(*self.scale)
        mirror = _happens(self.flip)
        columns, rows = (max(1, int(side * factor)) for side in image.size)
        (top, row0, row1), (left, col0, col1) = self._window(rows), self._window(columns)
        height, width = row1 - row0, col1 - col0
        if mirror:
            image = ImageOps.mirror(image)
        x, y = image.width / columns, image.height / rows  # source pixels per target pixel
        source = (left * x, top * y, (left + width) * x, (top + height) * y)
        part = image.resize((width, height), Image.Resampling.BILINEAR, box=source)
        canvas = Image.new("RGB", (self.crop, self.crop))
        canvas.paste(part, (col0, row0))
        return canvas, [row0, row1, col0, col1]

    def _window(self, side: int) -> tuple[int, int, int]:
        """Draws the position of the crop along one axis.

        Args:
            side: length of the scaled image.

        Returns:
            The first image pixel in the crop, and the range of crop pixels that show the image,
            half-open.
        """
        offset = int(torch.randint(abs(self.crop - side) + 1, ()))
        if side < self.crop:
            return 0, offset, offset + side
        return offset, 0, self.crop

    def _recoloured(self, image: Image.Image) -> Image.Image:
        if _happens(self.jitter_p):
            image = self.jitter(image)
        if _happens(self.grey):
            image = image.convert("L").convert("RGB")
        if _happens(self.blur):
            image = image.filter(ImageFilter.GaussianBlur(_uniform(0.1, 2.0)))
        return image


def labelled_crop(data: ImageSet, augment: Augment, id: str) -> dict[str, Any]:
    """Reads and augments an image.

    Returns:
        ``name``, ``image`` (3, S, S) uint8, ``label`` (K,), ``box`` (4,), and ``num_present``, the
        number of classes in the image.
    """
    image, box = augment(data.pil_image(id))
    found = {"name": id, "image": image, "label": data.label(id), "box": box}
    return found | {"num_present": len(data.present[id])}


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


def _happens(p: float) -> bool:
    return torch.rand(()).item() < p


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * torch.rand(()).item()


@dataclass(frozen=True, eq=False)
class Photo:
    """An image with its label and mask.

    Args:
        name: of the file, without folder and suffix.
        image: (3, H, W) uint8.
        label: image-level label (K,); None: unknown.
        truth: mask (H, W) uint8; None: unknown.
    """

    name: str
    image: Tensor
    label: Tensor | None
    truth: Tensor | None


def open_photo(word: str, data: ImageSet | None, longest: int | None = None) -> Photo:
    """Reads an image, and its label and mask if the data set has them.

    Args:
        word: a file, or an id of the data set.
        data: the data set to look in; None: none.
        longest: largest side in pixels; larger images are shrunk. None: no limit.

    Raises:
        InputError: no such image, or a damaged file.
    """
    path, known = Path(word), data.image_files if data else {}
    id = word if word in known and not path.exists() else None
    if id is None and not path.exists():
        raise InputError(f"{word}: no such image; expected a file, or an id of the run's data")
    upright = ImageOps.exif_transpose  # as viewers show a photo; masks of data sets lie as stored
    image = to_tensor(upright(read_pil(path))) if id is None else data.image(id)
    label = data.label(id) if id is not None and id in data.present else None
    truth = data.mask(id) if id is not None and id in data.mask_files else None
    image, truth = _shrunk(image, truth, longest)
    return Photo(path.stem, image, label, truth)


def _shrunk(
    image: Tensor, truth: Tensor | None, longest: int | None
) -> tuple[Tensor, Tensor | None]:
    """Shrinks image and mask until no side is longer than ``longest``."""
    factor = (longest or max(image.shape[1:])) / max(image.shape[1:])
    if factor >= 1:
        return image, truth
    size = [max(1, round(side * factor)) for side in image.shape[1:]]
    small = F.interpolate(image[None].float(), size, mode="bilinear", antialias=True)[0]
    if truth is not None:
        truth = F.interpolate(truth[None, None].float(), size, mode="nearest")[0, 0].byte()
    return small.round().clamp(0, 255).byte(), truth
