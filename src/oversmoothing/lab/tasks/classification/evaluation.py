"""Settings of the evaluation of a classifier, and the preparation of its images."""

import math
from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from oversmoothing.checks import at_least, require
from oversmoothing.lab.data.image_set import to_tensor


@dataclass(frozen=True)
class Evaluation:
    """Settings of an ``Evaluator``.

    An image's shorter side is resized to S / ``crop`` (bicubic); then an S × S square is cut from
    its centre.

    Args:
        size: S, side of the network's input.
        crop: S / length of the shorter side; DeiT uses 0.875.
        layer_images: number of validation images, evenly spaced, whose tokens are compared after
            every block; 0: none.
        batch: number of images per forward pass.
        workers: number of processes that read images; None: one for each core.

    Raises:
        InputError: a value is out of range.
    """

    size: int = 224
    crop: float = 0.875
    layer_images: int = 64
    batch: int = 64
    workers: int | None = None

    def __post_init__(self) -> None:
        require(
            "task.evaluation",
            **at_least(1, size=self.size, batch=self.batch),
            **at_least(0, layer_images=self.layer_images, workers=self.workers),
            crop=(self.crop, 0 < self.crop <= 1, "above 0, at most 1"),
        )

    def prepared(self, image: Image.Image) -> Tensor:
        """Resizes and crops an image. Shapes: RGB image -> (3, S, S) uint8."""
        from torchvision.transforms import functional as TF  # takes seconds

        side = math.floor(self.size / self.crop)
        resized = TF.resize(image, side, TF.InterpolationMode.BICUBIC)
        return to_tensor(TF.center_crop(resized, self.size))

    def described(self) -> str:
        """Describes the preparation of images."""
        side = math.floor(self.size / self.crop)
        return f"shorter side resized to {side} px (bicubic), middle {self.size}×{self.size} px"
