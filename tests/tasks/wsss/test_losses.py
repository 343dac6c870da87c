"""L_seg against the paper's equation in float64, cut into parts, and at its edges."""

import pytest
import torch
import torch.nn.functional as F
from small_vit import images as pictures
from small_vit import vit
from torch import Tensor, nn

from oversmoothing.lab.tasks.wsss.energy import dense_energy
from oversmoothing.lab.tasks.wsss.network import Outputs
from oversmoothing.lab.tasks.wsss.settings import Method
from oversmoothing.lab.tasks.wsss.task import (
    Imitation,
    Objective,
    Student,
    count_labels,
    segmentation_loss,
)


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
def test_without_background_or_foreground_it_is_finite(only: int) -> None:
    logits, _ = made_up()
    logits.requires_grad_()
    labels = torch.full((4, 10, 12), only)
    loss = segmentation_loss(logits, labels, count_labels(labels))
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all()


def test_every_loss_is_its_definition_for_two_images_of_a_batch_of_five() -> None:
    generator = torch.Generator().manual_seed(0)
    images, seg = (torch.rand(2, c, 16, 16, generator=generator) for c in (3, 4))
    cls, aux = torch.randn(2, 2, 3, generator=generator)
    pseudo = torch.randint(4, (2, 16, 16), generator=generator)
    label, box = torch.tensor([[1.0, 0, 1], [0, 1, 0]]), torch.tensor([[0, 16, 0, 16]] * 2)
    part = {"image": images, "label": label, "batch_size": 5, "box": box, "pseudo": pseudo}
    part["counts"] = count_labels(pseudo)
    weights = {"aux_weight": 0.5, "seg_weight": 0.3, "reg_weight": 0.2, "start": 3}
    method = Method(**weights, filter="exact", sigma_rgb=12.0, sigma_xy=40.0)
    objective = Objective(method, nn.Linear(1, 1))
    assert not objective.joined(2) and objective.joined(3)
    found = objective.losses(lambda image, segment: Outputs(cls, aux, seg), part, 3)
    energy = dense_energy(images, seg, pseudo, box, 12.0, 40.0, filter="exact", num_images=5)
    expected = {
        "cls": 2 / 5 * F.multilabel_soft_margin_loss(cls, label),
        "aux": 0.5 * 2 / 5 * F.multilabel_soft_margin_loss(aux, label),
        "seg": 0.3 * segmentation_loss(seg, pseudo, part["counts"]),
        "reg": 0.2e-7 * energy,
    }
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("zero", [True, False])
def test_before_the_start_the_decoder_may_have_gradients_of_zero(zero: bool) -> None:
    """AdamW then counts its steps, and decays its weights."""
    network = nn.ModuleDict({"decoder": nn.Linear(3, 2)})
    network.decoder = network["decoder"]
    before = network.decoder.weight.detach().clone()
    optimizer = torch.optim.AdamW(network.decoder.parameters(), lr=0.1, weight_decay=0.5)
    objective = Objective(Method(start=2, zero_gradients=zero), network)
    for step in range(2):
        optimizer.zero_grad()
        objective.prepare({}, step)
        optimizer.step()
    expected = before * (1 - 0.1 * 0.5) ** 2 if zero else before
    torch.testing.assert_close(network.decoder.weight.detach(), expected)
    counted = [float(state["step"]) for state in optimizer.state.values()]
    assert counted == ([2.0, 2.0] if zero else [])


def test_a_student_that_equals_its_teacher_has_nothing_to_imitate() -> None:
    teacher, objective = vit(), Imitation(vit())
    batch = objective.prepare({"image": pictures(1, 3, 224, 224), "batch_size": 1}, 0)
    assert objective.losses(Student(teacher), batch, 0)["imitation"] == 0
