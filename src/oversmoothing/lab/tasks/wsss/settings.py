"""The settings of the wsss task: its losses and labels, and its evaluation."""

from dataclasses import dataclass, field, replace
from typing import Literal

from oversmoothing.checks import at_least, probability, require, scales
from oversmoothing.lab.tasks.wsss.crf import CRF


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
        aux_labels_until: before this iteration, pseudo labels come from the auxiliary CAM, and
            from it on from the CAM of the last layer (ToCo's COCO schedule; 0 on VOC).
        high, low: the two background scores behind a pseudo label.
        cam_scales: scales of the input; each is used with its mirror image.
        par_iterations: iterations of pixel-adaptive refinement.
        sigma_rgb: of L_reg, on the 0–255 scale.
        sigma_xy: of L_reg, in pixels of the crop.
        filter: filter of L_reg, see ``energy.py``. ``toco`` returns 0.52 to 0.61 times the true
            sum, and the recipe's weight was chosen with it. At the same weight, ``lattice`` and
            ``exact`` regularise 1.6 to 1.9 times as strongly.

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


@dataclass(frozen=True)
class Evaluation:
    """Settings of an ``Evaluator``.

    Args:
        splits: splits to measure, among ``train`` and ``val``.
        size: side of the square that images are squashed to for CAMs, pseudo labels and ``seg``.
        background: threshold; pixels whose CAMs are all at most this are background.
        ms_splits: subset of ``splits`` for multi-scale and CRF, which take seconds per image.
        ms_scales: scales of multi-scale segmentation (``seg_ms``); empty: it is not measured. Sides
            are rounded to whole patches; halves are rounded to even numbers.
        ms_size: side of the square at scale 1; None: the image's own size.
        fusion: how scales and mirror images are fused, see ``network.py``.
        crf: dense CRF on the multi-scale probabilities (``seg_crf``); None: it is not measured.
        limit: number of images, evenly spaced; None: all.
        ms_limit: number of images for multi-scale and CRF; None: as ``limit``.
        cam_scales: scales of the CAMs that are measured; None: those of ``Method``.
        backgrounds: thresholds for a curve of the CAMs' mIoU; empty: no curve.
        common: also measure the mean IoU over background and the labels with at least this many
            training images; 0: do not.
        boundary: also measure the boundary IoU of CAM, pseudo label and ``seg``.
        known: also measure ``seg_known``, which is ``seg`` restricted to the classes in the image's
            label, as for CAMs. Its gain over ``seg`` is the cost of confused classes.
        every: iterations between two evaluations during the training, on ``val``; None: measure
            only the trained network.
        batch: number of squashed images per forward pass.
        workers: number of processes that read images; None: one for each core.

    Raises:
        InputError: there is no split, ``ms_splits`` is not a subset of ``splits``, or a value is
            out of range.
    """

    splits: list[Literal["train", "val"]] = field(default_factory=lambda: ["val"])
    size: int = 448
    background: float = 0.5
    ms_splits: list[Literal["train", "val"]] = field(default_factory=lambda: ["val"])
    ms_scales: list[float] = field(default_factory=lambda: [1.0, 1.25, 1.5])
    ms_size: int | None = None
    fusion: Literal["voc", "coco"] = "voc"
    crf: CRF | None = field(default_factory=CRF)
    limit: int | None = None
    ms_limit: int | None = None
    cam_scales: list[float] | None = None
    backgrounds: list[float] = field(default_factory=list)
    common: int = 0
    boundary: bool = False
    known: bool = False
    every: int | None = None
    batch: int = 8
    workers: int | None = None

    def multi_scale(self, method: Method, split: str) -> bool:
        """Whether a split is segmented at several scales."""
        return method.segments and bool(self.ms_scales) and split in self.ms_splits

    def shown(self, method: Method) -> Method:
        """Returns the method with the CAM scales of this evaluation."""
        return replace(method, cam_scales=self.cam_scales) if self.cam_scales else method

    def __post_init__(self) -> None:
        ms_splits = (self.ms_splits, {*self.ms_splits} <= {*self.splits}, f"some of {self.splits}")
        require(
            "task.evaluation",
            **at_least(1, size=self.size, batch=self.batch, ms_size=self.ms_size),
            **at_least(1, limit=self.limit, ms_limit=self.ms_limit),
            **at_least(1, every=self.every),
            **at_least(0, workers=self.workers, common=self.common),
            **probability(background=self.background),
            backgrounds=(self.backgrounds, all(0 <= b <= 1 for b in self.backgrounds), "0 to 1"),
            **scales(cam_scales=self.cam_scales, ms_scales=self.ms_scales),
            splits=("none", len(self.splits) > 0, "train, val or both"),
            ms_splits=ms_splits,
        )
