"""Augments training images as ToCo does (Ru et al., CVPR 2023); its error is an option."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor, nn

from oversmoothing.checks import at_least, probability, require
from oversmoothing.lab.data.images.convert import to_tensor
from oversmoothing.lab.data.images.image_set import ImageSet


class Augment:
    """Scales, flips, crops, jitters colours, turns grey and blurs, in this order.

    A scaled image that is smaller than the crop is placed at a random offset on black. Changes of
    colour apply to the black, too. All random numbers come from torch's global generator.

    Args:
        crop: S, side of the square.
        scale: smallest and largest scale factor; it is drawn uniformly, the resize is bilinear.
        flip: probability of a mirror image.
        jitter: strengths of brightness, contrast, saturation and hue.
        jitter_p: probability of the jitter.
        grey: probability of a grey image.
        blur: probability of a Gaussian blur of standard deviation U[0.1, 2] pixels.
        toco_compat: mirror the crop once more with probability 1/2 without mirroring its box, as
            ToCo's code does. Half of the boxes of narrow images are then wrong.

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
        toco_compat: bool = False,
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
        self.strengths, self.toco_compat = tuple(jitter), toco_compat

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
        if self.toco_compat and _happens(0.5):
            crop = ImageOps.mirror(crop)
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


def _happens(p: float) -> bool:
    return torch.rand(()).item() < p


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * torch.rand(()).item()
