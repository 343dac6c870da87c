"""What is measured of a classifier, and how its images are prepared."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import functional as TF

from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Evaluation:
    """How validation images are prepared and counted.

    Args:
        size: S, side of the square that the network sees.
        crop: S over the side that the shorter side of an image is resized to (bicubic) before the
            square is cut out of its middle; DeiT: 0.875.
        layer_images: on so many validation images, evenly spaced, the tokens of every block are
            compared; 0: on none.
        batch: images at once.
        workers: processes that read images.

    Raises:
        InputError: a value out of range.
    """

    size: int = 224
    crop: float = 0.875
    layer_images: int = 64
    batch: int = 64
    workers: int = 2

    def __post_init__(self) -> None:
        for key, least in {"size": 1, "layer_images": 0, "batch": 1, "workers": 0}.items():
            if getattr(self, key) < least:
                raise InputError(
                    f"task.evaluation.{key}: expected {least} or more, got {getattr(self, key)}"
                )
        if not 0 < self.crop <= 1:
            raise InputError(f"task.evaluation.crop: expected above 0, at most 1, got {self.crop}")

    def prepared(self, image: Tensor) -> Tensor:
        """Shapes: (3, H, W) uint8 -> (3, S, S) float32 in [0, 1]."""
        picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
        side = math.floor(self.size / self.crop)
        resized = TF.resize(picture, side, TF.InterpolationMode.BICUBIC)
        pixels = np.array(TF.center_crop(resized, self.size))
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(255)

    def described(self) -> str:
        """In words."""
        side = math.floor(self.size / self.crop)
        return f"shorter side resized to {side} px (bicubic), middle {self.size}×{self.size} px"
