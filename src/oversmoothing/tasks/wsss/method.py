"""Settings of the wsss pipeline: losses and pseudo labels."""

from dataclasses import dataclass, field
from typing import Literal

from oversmoothing.errors import InputError
from oversmoothing.tasks.wsss.par import PAR


@dataclass(frozen=True)
class Method:
    """Losses and pseudo labels of ToCo's pipeline, without its two contrastive losses.

    Args:
        aux_weight: weight of L_cls^m, the auxiliary classifier's loss; 0: none.
        seg_weight: weight of L_seg; if this and ``reg_weight`` are 0, the decoder is not trained.
        reg_weight: weight of L_reg.
        start: first iteration with L_seg and L_reg; until then only the classifiers are trained.
        aux_labels_until: up to this iteration pseudo labels come from the auxiliary CAM, after it
            from the last layer's (ToCo's COCO schedule; 0 on VOC).
        high, low: the two background scores behind a pseudo label.
        cam_scales: scales of the input; each is used with its mirror image.
        par_iterations: iterations of pixel-adaptive refinement.
        sigma_rgb: of L_reg, on the 0–255 scale.
        sigma_xy: of L_reg, in pixels of the crop.
        filter: filter of L_reg, see ``bilateral.py``. ``toco`` returns 0.52 to 0.61 times the true
            sum, and the recipe's weight was chosen with it. At the same weight, ``lattice`` and
            ``exact`` regularise 1.6 to 1.9 times as strongly.
        toco_compat: keep two properties of ToCo's code: rows of PAR that sum to 1.01, and an L_seg
            that is NaN without background or without foreground pixels.

    Raises:
        InputError: a weight below 0, background scores out of order, or a scale of 0 or less.
    """

    aux_weight: float = 1.0
    seg_weight: float = 0.1
    reg_weight: float = 0.05
    start: int = 2000
    aux_labels_until: int = 0
    high: float = 0.7
    low: float = 0.25
    cam_scales: list[float] = field(default_factory=lambda: [1.0, 0.5, 1.5])
    par_iterations: int = 10
    sigma_rgb: float = 15.0
    sigma_xy: float = 100.0
    filter: Literal["toco", "lattice", "exact"] = "toco"
    toco_compat: bool = False

    def __post_init__(self) -> None:
        for key in ("aux_weight", "seg_weight", "reg_weight", "start", "par_iterations"):
            if getattr(self, key) < 0:
                raise InputError(f"task.method.{key}: expected 0 or more, got {getattr(self, key)}")
        if not 0 < self.low <= self.high < 1:
            raise InputError(
                f"task.method.low, .high: expected 0 < low <= high < 1, got {self.low}, {self.high}"
            )
        if not self.cam_scales or min(self.cam_scales) <= 0:
            raise InputError(
                f"task.method.cam_scales: expected scales above 0, got {self.cam_scales}"
            )

    @property
    def segments(self) -> bool:
        """Whether the decoder is trained."""
        return self.seg_weight > 0 or self.reg_weight > 0

    def par(self) -> PAR:
        """The refinement of pseudo labels."""
        return PAR(iterations=self.par_iterations, toco_compat=self.toco_compat)
