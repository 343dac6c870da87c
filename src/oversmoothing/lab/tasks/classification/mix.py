"""Mixup, CutMix and label smoothing, as DeiT uses timm's."""

from dataclasses import dataclass

from torch import Tensor

from oversmoothing.checks import at_least, probability, require
from oversmoothing.lab.data.loading import seeded


@dataclass(frozen=True)
class Mix:
    """Mixes image i of b with image b − 1 − i, with the same share for all images of a batch.

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
