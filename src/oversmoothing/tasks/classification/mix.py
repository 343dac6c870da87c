"""Mixed images and soft targets: mixup, CutMix, label smoothing (timm's, as DeiT uses them)."""

from dataclasses import dataclass

from timm.data.mixup import Mixup, mixup_target
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.tasks.classification.generators import seeded


@dataclass(frozen=True)
class Mix:
    """How the images of a batch are mixed: image i of b with image b − 1 − i, all at one share.

    Args:
        mixup: α of the Beta distribution of mixup's share (Zhang et al., ICLR 2018); 0: no mixup.
        cutmix: the same of CutMix (Yun et al., ICCV 2019); 0: none.
        prob: probability that a batch is mixed.
        switch: probability that it is CutMix where there are both.
        smoothing: share of the target that all classes divide.

    Raises:
        InputError: a value out of range.
    """

    mixup: float = 0.8
    cutmix: float = 1.0
    prob: float = 1.0
    switch: float = 0.5
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        for key in ("mixup", "cutmix"):
            if getattr(self, key) < 0:
                raise InputError(f"task.mix.{key}: expected 0 or more, got {getattr(self, key)}")
        for key in ("prob", "switch", "smoothing"):
            if not 0 <= getattr(self, key) <= 1:
                raise InputError(f"task.mix.{key}: expected 0 to 1, got {getattr(self, key)}")

    @property
    def mixes(self) -> bool:
        """Whether images are mixed at all; then batches need even numbers of them."""
        return self.prob > 0 and max(self.mixup, self.cutmix) > 0

    def __call__(
        self, images: Tensor, target: Tensor, num_classes: int, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Images and soft targets; all that is random comes from ``seed``.

        Shapes: images (b, 3, H, W), target (b,) -> (b, 3, H, W), (b, K).
        """
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
            return mixup(images.clone(), target)  # it mixes in place
