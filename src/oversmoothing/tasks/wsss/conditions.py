"""How the numbers of every stage were measured, in words that go beside them."""

from collections.abc import Sequence

from oversmoothing.tasks.wsss.evaluation import Evaluation
from oversmoothing.tasks.wsss.objective import Method


def conditions(method: Method, evaluation: Evaluation, images: str, few: str) -> dict[str, str]:
    """Stage -> split, scales, thresholds and CRF behind its mIoU.

    Args:
        images, few: the images of a single scale, of several: ``445 images of voc_subset val``.
    """
    ev = evaluation
    square = f"{images}, squashed to {ev.size}×{ev.size}"
    cam = f"{square}, scales {_listed(method.cam_scales)} with flips, classes by image label"
    cam_alone = f"{cam}, background ≤ {ev.background:g}, no PAR, no CRF"
    ms_size = f"squashed to {ev.ms_size}×{ev.ms_size}" if ev.ms_size else "own size"
    ms = f"{few}, {ms_size}, scales {_listed(ev.ms_scales)} with flips, fused as {ev.fusion}"
    return {
        "cam": cam_alone,
        "aux_cam": cam_alone,
        "pseudo": f"{cam}, PAR, background {method.high:g} and {method.low:g}, unsure dropped",
        "seg": f"{square}, single scale, no CRF",
        "seg_ms": f"{ms}, no CRF",
        "seg_crf": f"{ms}, {ev.crf}",
    }


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
