import torch

from oversmoothing.metrics.segmentation import Confusion, ThresholdCurve


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
