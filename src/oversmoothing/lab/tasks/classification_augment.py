"""Augments training images as DeiT does (Touvron et al., ICML 2021), with timm's transforms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from oversmoothing.checks import at_least, probability, require
from oversmoothing.lab.data.image_set import LabelledImages
from oversmoothing.lab.data.loading import seeded, stacked


@dataclass(frozen=True)
class Mix:
    """Mixes image i of b with image b − 1 − i, with the same share for all images of a batch.

    Mixup, CutMix and label smoothing, as DeiT uses timm's.

    Args:
        mixup: α of the Beta distribution of mixup's share (Zhang et al., ICLR 2018); 0: no mixup.
        cutmix: α of the Beta distribution of CutMix's share (Yun et al., ICCV 2019); 0: no CutMix.
        prob: probability that a batch is mixed.
        switch: probability of CutMix instead of mixup, if both are on.
        smoothing: share of the target that is spread over all classes.

    Raises:
        InputError: a value is out of range.
    """

    mixup: float = 0.8
    cutmix: float = 1.0
    prob: float = 1.0
    switch: float = 0.5
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        require(
            "task.mix",
            **at_least(0, mixup=self.mixup, cutmix=self.cutmix),
            **probability(prob=self.prob, switch=self.switch),
            smoothing=(self.smoothing, 0 <= self.smoothing <= 1, "0 to 1"),
        )

    @property
    def mixes(self) -> bool:
        """Whether images are mixed; if so, batches must be even."""
        return self.prob > 0 and max(self.mixup, self.cutmix) > 0

    def __call__(
        self, images: Tensor, target: Tensor, num_classes: int, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Mixes images and computes soft targets; all random numbers depend on ``seed``.

        Shapes: images (b, 3, H, W), target (b,) -> (b, 3, H, W), (b, K).
        """
        from timm.data.mixup import Mixup, mixup_target  # takes seconds

        if not self.mixes:
            return images, mixup_target(target, num_classes, smoothing=self.smoothing)
        mixup = Mixup(
            mixup_alpha=self.mixup,
            cutmix_alpha=self.cutmix,
            prob=self.prob,
            switch_prob=self.switch,
            label_smoothing=self.smoothing,
            num_classes=num_classes,
        )
        with seeded(seed):
            return mixup(images.clone(), target)  # mixup works in place


class Augment:
    """Crops and resizes (bicubic), mirrors, applies RandAugment and erases, in this order.

    timm's generators are seeded from torch's global generator.

    Args:
        size: S, side of the square.
        scale: smallest and largest share of the image's area that a crop covers.
        ratio: smallest and largest ratio of width to height of a crop, before the resize.
        flip: probability of a mirror image.
        rand_augment: timm's name of a RandAugment policy (rand-m9-mstd0.5-inc1); null: none.
        erase: probability that a rectangle is replaced by noise. The noise is N(0, 1) after the
            backbone's normalisation, so its pixels may be outside [0, 1].

    Raises:
        InputError: a value is out of range, or timm does not know the policy.
    """

    def __init__(
        self,
        size: int = 224,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        rand_augment: str | None = "rand-m9-mstd0.5-inc1",
        erase: float = 0.25,
    ) -> None:
        from timm.data import create_transform  # takes seconds
        from timm.data.random_erasing import RandomErasing

        name = "a name such as rand-m9-mstd0.5-inc1, or null for none"
        shares = _in_order(scale) and scale[1] <= 1
        require(
            "task.augment",
            **at_least(1, size=size),
            scale=(list(scale), shares, "[low, high] with 0 < low <= high <= 1"),
            ratio=(list(ratio), _in_order(ratio), "[low, high] with 0 < low <= high"),
            rand_augment=(repr(rand_augment), _is_known(rand_augment), name),
            **probability(flip=flip, erase=erase),
        )
        self.size = size
        self.distort = create_transform(
            size,
            is_training=True,
            scale=tuple(scale),
            ratio=tuple(ratio),
            hflip=flip,
            color_jitter=None,
            auto_augment=rand_augment,
            interpolation="bicubic",
            normalize=False,
        )
        self.erase = RandomErasing(erase, mode="pixel", device="cpu")

    def __call__(self, image: Image.Image) -> tuple[Tensor, Tensor, Tensor]:
        """Augments an image; the noise is added later, by ``erased``.

        Returns:
            The image; the erased rectangle (row0, row1, col0, col1), half-open; and its noise.

        Shapes: RGB image -> (3, S, S) uint8, (4,) int64, (3, rows, columns) float32.
        """
        with seeded(int(torch.randint(2**62, ()))):
            pixels = self.distort(image)
            noise = self.erase(torch.full(pixels.shape, torch.nan))
        rows, columns = (~noise[0].isnan().all(dim=axis) for axis in (1, 0))
        box = [*_range(rows), *_range(columns)]
        return pixels, torch.tensor(box), noise[:, box[0] : box[1], box[2] : box[3]]


def erased(batch: dict[str, Any], mean: Tensor, std: Tensor) -> Tensor:
    """Returns the images of a batch with noise in the erased rectangles, on their device.

    Args:
        batch: ``image``, ``box`` and ``noise``, as from ``collate``.
        mean, std: of the backbone's normalisation, (3, 1, 1).

    Shapes: -> (B, 3, S, S) float32.
    """
    images, noise = (batch["image"] - mean) / std, batch["noise"]
    row0, row1, column0, column1 = batch["box"].T[:, :, None, None, None]
    rows, columns = (torch.arange(n, device=images.device) for n in images.shape[-2:])
    rows = rows[:, None]
    inside = (rows >= row0) & (rows < row1) & (columns >= column0) & (columns < column1)
    return images.masked_scatter_(inside, noise) * std + mean


def labelled_image(data: LabelledImages, augment: Augment, id: str) -> dict[str, Any]:
    """Reads and augments a training image.

    Returns:
        ``name``, ``image`` (3, S, S) uint8, ``target`` (), and ``box`` and ``noise`` of the erased
        rectangle.
    """
    image, box, noise = augment(data.pil_image(id))
    target = torch.tensor(data.target(id))
    return {"name": id, "image": image, "target": target, "box": box, "noise": noise}


def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
    """Stacks examples; the noise of all of them is joined to one vector."""
    noise = torch.cat([example.pop("noise").flatten() for example in examples])
    return stacked(examples) | {"noise": noise}


def _range(chosen: Tensor) -> tuple[int, int]:
    """Returns the half-open range of the true entries, which are contiguous; (0, 0) without any."""
    places = chosen.nonzero()[:, 0].tolist()
    return (places[0], places[-1] + 1) if places else (0, 0)


def _in_order(values: Sequence[float]) -> bool:
    return len(values) == 2 and 0 < values[0] <= values[1]


def _is_known(rand_augment: str | None) -> bool:
    """Whether timm knows a name."""
    from timm.data.auto_augment import rand_augment_transform

    if rand_augment is None:
        return True
    try:
        rand_augment_transform(rand_augment, {})
    except (AssertionError, ValueError, KeyError):
        return False
    return True
