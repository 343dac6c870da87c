"""Settings of the evaluation of a classifier, and the preparation of its images."""

import math
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from oversmoothing.data.images.convert import to_float, to_tensor
from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Evaluation:
    """Settings that an ``Evaluator`` follows.

    An image's shorter side is resized to S / ``crop`` (bicubic); then an S × S square is cut from
    its centre.

    Args:
        size: S, side of the network's input.
        crop: S / length of the shorter side; DeiT uses 0.875.
        layer_images: number of validation images, evenly spaced, whose tokens are compared after
            every block; 0: none.
        batch: number of images per forward pass.
        workers: number of processes that read images.

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

    def prepared(self, image: Image.Image) -> Tensor:
        """Resizes and crops an image. Shapes: RGB image -> (3, S, S) float32 in [0, 1]."""
        from torchvision.transforms import functional as TF  # takes seconds

        side = math.floor(self.size / self.crop)
        resized = TF.resize(image, side, TF.InterpolationMode.BICUBIC)
        return to_float(to_tensor(TF.center_crop(resized, self.size)))

    def described(self) -> str:
        """Describes the preparation in words."""
        side = math.floor(self.size / self.crop)
        return f"shorter side resized to {side} px (bicubic), middle {self.size}×{self.size} px"
