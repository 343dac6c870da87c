"""Settings of the wsss pipeline: losses and pseudo labels."""

from dataclasses import dataclass, field
from typing import Literal

from oversmoothing.checks import at_least, require, scales


@dataclass(frozen=True)
class Method:
    """Losses and pseudo labels of ToCo's pipeline, without its two contrastive losses.

    Args:
        aux_weight: weight of L_cls^m, the auxiliary classifier's loss; 0: none.
        seg_weight: weight of L_seg; if this and ``reg_weight`` are 0, the decoder is not trained.
        reg_weight: weight of L_reg.
        start: first iteration with L_seg and L_reg; until then only the classifiers are trained.
        zero_gradients: until ``start``, set the decoder's gradients to 0 instead of None, as in
            ToCo's code. AdamW's weight decay then acts on the decoder, and its bias correction is
            over at ``start``, so the first steps are larger.
        aux_labels_until: up to this iteration, pseudo labels come from the auxiliary CAM, and
            afterwards from the CAM of the last layer (ToCo's COCO schedule; 0 on VOC).
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
        InputError: a weight is below 0, background scores are not ascending, a scale or σ is not
            above 0, or pseudo labels come from an auxiliary CAM that is not trained.
    """

    aux_weight: float = 1.0
    seg_weight: float = 0.1
    reg_weight: float = 0.05
    start: int = 2000
    zero_gradients: bool = False
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
        low, high, until = self.low, self.high, self.aux_labels_until
        possible = until == 0 or (until > 0 and self.aux_weight > 0)
        rules = {"low, .high": (f"{low}, {high}", 0 < low <= high < 1, "0 < low <= high < 1")}
        require(
            "task.method",
            **at_least(0, aux_weight=self.aux_weight, seg_weight=self.seg_weight),
            **at_least(0, reg_weight=self.reg_weight),
            **at_least(0, par_iterations=self.par_iterations, start=self.start),
            aux_labels_until=(until, possible, "0, or above 0 with an aux_weight above 0"),
            sigma_rgb=(self.sigma_rgb, self.sigma_rgb > 0, "above 0"),
            sigma_xy=(self.sigma_xy, self.sigma_xy > 0, "above 0"),
            **rules,
            **scales(cam_scales=self.cam_scales or [0]),
        )

    @property
    def segments(self) -> bool:
        """Whether the decoder is trained."""
        return self.seg_weight > 0 or self.reg_weight > 0
