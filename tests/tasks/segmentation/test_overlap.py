"""IoU against mmsegmentation, sets of pixels, and the laws of a confusion matrix."""

import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from processes import by_two, without_error

from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.overlap import Confusion, ThresholdCurve

C = 21


def masks(seed: int, labels: int = C) -> tuple[torch.Tensor, torch.Tensor]:
    """Prediction and truth (2, 40, 50), right at about half of the pixels."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(0, labels, (2, 40, 50), generator=generator)
    prediction = torch.randint(0, labels, truth.shape, generator=generator)
    right = torch.rand(truth.shape, generator=generator) < 0.5
    prediction = torch.where(right, truth, prediction)
    return prediction, truth.masked_fill(torch.rand(truth.shape, generator=generator) < 0.1, 255)


def counted(*pairs: tuple[torch.Tensor, torch.Tensor], **options: str) -> Confusion:
    confusion = Confusion(C, **options)
    for prediction, truth in pairs:
        confusion.update(prediction, truth)
    return confusion


def mmseg(*pairs: tuple[torch.Tensor, torch.Tensor]) -> np.ndarray:
    """IoU per class by mmsegmentation's IoUMetric, in percent, NaN without union."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metrics = pytest.importorskip("mmseg.evaluation.metrics")
    areas = [metrics.IoUMetric.intersect_and_union(p, t, C, 255) for p, t in pairs]
    total = [sum(area) for area in zip(*areas)]
    found = metrics.IoUMetric.total_area_to_metrics(*total, metrics=["mIoU"])
    return found["IoU"] * 100


def same(ours: list[float | None], theirs: np.ndarray) -> None:
    ours = np.array([math.nan if iou is None else iou for iou in ours])
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)  # mmsegmentation counts in float32


def test_agrees_with_mmsegmentation_on_random_masks() -> None:
    pairs = [masks(seed) for seed in range(3)]
    confusion = counted(*pairs)
    same(confusion.iou(), mmseg(*pairs))
    assert confusion.miou() == pytest.approx(np.nanmean(mmseg(*pairs)), rel=1e-6)


def test_classes_that_never_occur() -> None:
    """Absent: None and mmsegmentation's NaN; only predicted: 0, in its mean and not in ours."""
    prediction, truth = masks(0, labels=5)
    prediction[0, 0, 0], truth[0, 0, 0] = 7, 1
    confusion = counted((prediction, truth))
    assert confusion.iou()[7] == 0 and confusion.iou()[20] is None
    theirs = mmseg((prediction, truth))
    same(confusion.iou(), theirs)
    assert confusion.miou() == pytest.approx(theirs[:5].mean(), rel=1e-6)
    assert confusion.miou() == pytest.approx(np.nanmean(theirs) * 6 / 5, rel=1e-6)


def test_agrees_with_mmsegmentation_on_real_masks(data_root: Path) -> None:
    folder = data_root / "VOC2012" / "SegmentationClassAug"
    if not folder.is_dir():
        pytest.skip("no VOC2012")
    truths = [np.asarray(Image.open(path)) for path in sorted(folder.glob("*.png"))[:20]]
    pairs = [(np.roll(truth, 9, axis=(0, 1)), truth) for truth in truths]
    pairs = [(np.where(p == 255, 0, p), t) for p, t in pairs]
    tensors = [tuple(torch.tensor(x).long() for x in pair) for pair in pairs]
    same(counted(*pairs).iou(), mmseg(*tensors))


def test_iou_is_that_of_the_sets_of_pixels() -> None:
    prediction, truth = masks(1)
    prediction[truth == 255] = 255
    for k, iou in enumerate(counted((prediction, truth)).iou()):
        a, b = prediction == k, truth == k
        assert iou == pytest.approx(100 * (a & b).sum().item() / (a | b).sum().item())


def test_parts_in_any_order_type_and_place_add_up() -> None:
    whole = counted(masks(0), masks(1))
    parts = counted(*[(p.numpy(), t.numpy().astype(np.uint8)) for p, t in zip(*masks(1))])
    parts.matrix += counted(masks(0)).matrix
    assert torch.equal(whole.matrix, parts.matrix)


def test_unsure_pixels_are_missed_or_dropped() -> None:
    truth = torch.tensor([0, 0, 0, 1, 1, 255])
    prediction = torch.tensor([0, 0, 255, 1, 0, 255])
    wrong, drop = (counted((prediction, truth), unsure=u) for u in ("wrong", "drop"))
    assert wrong.iou()[:2] == [50, 50]  # 2 of {4 true or predicted 0}, 1 of 2
    assert drop.iou()[:2] == [pytest.approx(200 / 3), 50]
    assert wrong.decided() == drop.decided() == 80


def test_dropping_is_the_truth_set_to_ignore() -> None:
    prediction, truth = masks(2)
    prediction[:, :7] = 255
    dropped = counted((prediction, truth), unsure="drop")
    assert dropped.iou() == counted((prediction, truth.where(prediction != 255, 255))).iou()


def test_without_pixels_there_is_no_mean() -> None:
    assert math.isnan(Confusion(3).miou()) and Confusion(3).iou() == [None] * 3


@pytest.mark.parametrize(
    ("prediction", "truth", "said"),
    [
        (torch.zeros(2, 3).int(), torch.zeros(3, 2).int(), "img: "),
        (torch.tensor([21]), torch.tensor([0]), "img: prediction: "),
        (torch.tensor([0]), torch.tensor([-1]), "img: truth: "),
        (torch.tensor([0.5]), torch.tensor([0]), "img: prediction: "),
    ],
)
def test_bad_input_is_named_and_counts_nothing(
    prediction: torch.Tensor, truth: torch.Tensor, said: str
) -> None:
    confusion = Confusion(C)
    with pytest.raises(InputError, match=said):
        confusion.update(prediction, truth, name="img")
    assert not confusion.matrix.any()


def of_a_process(folder: Path) -> None:
    rank, confusion = int(os.environ["RANK"]), Confusion(3)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    confusion.update(torch.tensor([rank]), torch.tensor([2]))
    confusion.all_reduce()
    assert confusion.matrix.tolist() == [[0] * 4, [0] * 4, [1, 1, 0, 0]], confusion.matrix
    dist.destroy_process_group()


def test_processes_add_up(tmp_path: Path) -> None:
    without_error(by_two(of_a_process, tmp_path))


def test_every_threshold_counts_as_a_confusion_matrix_of_its_own() -> None:
    generator = torch.Generator().manual_seed(0)
    thresholds = (0.2, 0.5, 0.8)
    curve = ThresholdCurve(4, thresholds)
    alone = [Confusion(4) for _ in thresholds]
    for _ in range(2):
        scores = (torch.rand(9, 7, generator=generator) * 10).round() / 10  # some on a threshold
        classes = torch.randint(1, 4, (9, 7), generator=generator)
        truth = torch.randint(0, 4, (9, 7), generator=generator)
        truth[0] = 255
        curve.update(scores, classes, truth)
        for t, confusion in zip(thresholds, alone):
            confusion.update(torch.where(scores > t, classes, 0), truth)
    for place, confusion in enumerate(alone):
        assert torch.equal(curve.at(place).matrix, confusion.matrix)
    assert list(curve.miou()) == list(thresholds)
    assert curve.miou()[0.5] == alone[1].miou()
    assert alone[0].miou({1}) == alone[0].iou()[1] != alone[0].miou()


def test_a_repeated_threshold_counts_once() -> None:
    curve = ThresholdCurve(2, (0.5, 0.2, 0.2))
    assert curve.thresholds.tolist() == pytest.approx([0.2, 0.5])
    curve.update(torch.tensor([0.4, 0.9]), torch.tensor([1, 1]), torch.tensor([0, 1]))
    assert [curve.at(place).miou() for place in range(len(curve.miou()))] == [25, 100]
