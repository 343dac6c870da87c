"""Training images as ToCo augments them (Ru et al., CVPR 2023), with its defect as an option."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision.transforms import v2

from oversmoothing.data.images.image_set import ImageSet
from oversmoothing.errors import InputError


class Augment:
    """Scale, flip, crop, colour jitter, grey, blur, in this order.

    The crop of a scaled image that is smaller than it lies at a random offset on black, and the
    photometric steps treat the black as image. All draws come from torch's global generator.

    Args:
        crop: S, side of the square.
        scale: smallest and largest factor, drawn uniformly; bilinear.
        flip: probability of a mirror image.
        jitter: strengths of brightness, contrast, saturation and hue.
        jitter_p: probability of the jitter.
        grey: probability of a grey image.
        blur: probability of a Gaussian blur of standard deviation U[0.1, 2] pixels.
        toco_compat: mirrors the crop once more with probability 1/2 and leaves its box as it was,
            as ToCo's code does, so that half of the boxes of narrow images are wrong.

    Raises:
        InputError: a value out of its range.
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
        _check(crop, scale, jitter, flip=flip, jitter_p=jitter_p, grey=grey, blur=blur)
        self.crop, self.scale = crop, tuple(scale)
        self.flip, self.jitter_p, self.grey, self.blur = flip, jitter_p, grey, blur
        self.jitter = v2.ColorJitter(*jitter)
        self.toco_compat = toco_compat

    def __call__(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """A crop, and the part of it that is image: (row0, row1, col0, col1), half-open.

        Shapes: (3, H, W) uint8 -> (3, S, S) float32 in [0, 1], (4,) int64.
        """
        picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
        picture, box = self._cropped(picture)
        if self.toco_compat and _happens(0.5):
            picture = _mirrored(picture)
        picture = self._recoloured(picture)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        return pixels.contiguous().float().div_(255), torch.tensor(box)

    def _cropped(self, image: Image.Image) -> tuple[Image.Image, list[int]]:
        """Scale, flip and crop; of the scaled image only what the crop shows is computed."""
        factor = _uniform(*self.scale)
        mirror = _happens(self.flip)
        columns, rows = (max(1, int(side * factor)) for side in image.size)
        (top, row0, row1), (left, col0, col1) = self._window(rows), self._window(columns)
        height, width = row1 - row0, col1 - col0
        if mirror:
            image = _mirrored(image)
        x, y = image.width / columns, image.height / rows  # source pixels a target pixel
        source = (left * x, top * y, (left + width) * x, (top + height) * y)
        part = image.resize((width, height), Image.Resampling.BILINEAR, box=source)
        canvas = Image.new("RGB", (self.crop, self.crop))
        canvas.paste(part, (col0, row0))
        return canvas, [row0, row1, col0, col1]

    def _window(self, side: int) -> tuple[int, int, int]:
        """One axis: first image pixel that is shown, and where the image lies in the crop."""
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
    """An augmented training image with its image-level label.

    Returns:
        ``name``, ``image`` (3, S, S), ``label`` (K,) and ``box`` (4,).
    """
    image, box = augment(data.image(id))
    return {"name": id, "image": image, "label": data.label(id), "box": box}


def _happens(p: float) -> bool:
    return torch.rand(()).item() < p


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * torch.rand(()).item()


def _mirrored(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def _check(
    crop: int, scale: Sequence[float], jitter: Sequence[float], **probabilities: float
) -> None:
    """Every wrong argument in one line."""
    rules = {
        f"crop: expected 1 or more, got {crop}": crop >= 1,
        f"scale: expected [low, high] with 0 < low <= high, got {list(scale)}": len(scale) == 2
        and 0 < scale[0] <= scale[1],
        f"jitter: expected [brightness, contrast, saturation, hue], 0 or more each, hue at most "
        f"0.5, got {list(jitter)}": len(jitter) == 4 and min(jitter) >= 0 and jitter[3] <= 0.5,
    }
    for name, p in probabilities.items():
        rules[f"{name}: expected a probability, 0 to 1, got {p}"] = 0 <= p <= 1
    if broken := [f"augment.{rule}" for rule, holds in rules.items() if not holds]:
        raise InputError("; ".join(broken))
