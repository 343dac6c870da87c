"""L_seg against the paper's equation in float64, cut into parts, and at its edges."""

import pytest
import torch
from torch import Tensor

from oversmoothing.tasks.wsss.objective import count_labels, segmentation_loss


def made_up(B: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(B, 4, 10, 12, generator=generator)
    labels = torch.randint(0, 5, (B, 10, 12), generator=generator)
    return logits, torch.where(labels == 4, 255, labels)


def test_it_is_the_mean_of_two_means() -> None:
    logits, labels = made_up()
    up = logits.double().log_softmax(1)
    losses = {True: [], False: []}
    for b in range(len(labels)):
        for i in range(10):
            for j in range(12):
                if (y := int(labels[b, i, j])) != 255:
                    losses[y == 0].append(-float(up[b, y, i, j]))
    expected = sum(0.5 * sum(part) / len(part) for part in losses.values())
    found = segmentation_loss(logits, labels, count_labels(labels))
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_parts_add_up_to_the_whole() -> None:
    logits, labels = made_up()
    counts = count_labels(labels)
    whole = segmentation_loss(logits, labels, counts)
    parts = [segmentation_loss(logits[p], labels[p], counts) for p in ([0], [1, 2], [3])]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize("only", [0, 2, 255])
def test_without_background_or_foreground_it_is_finite_but_for_toco(only: int) -> None:
    logits, _ = made_up()
    logits.requires_grad_()
    labels = torch.full((4, 10, 12), only)
    loss = segmentation_loss(logits, labels, count_labels(labels))
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all()
    assert segmentation_loss(logits, labels, count_labels(labels), toco_compat=True).isnan()
