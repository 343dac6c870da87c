"""CAMs and pseudo labels: laws that hold for any network."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.lab.tasks.wsss.labels import Labeller, inside, pseudo_labels
from oversmoothing.lab.tasks.wsss.network import (
    Present,
    multi_scale_cams,
    multi_scale_probabilities,
    present_classes,
)
from oversmoothing.lab.tasks.wsss.par import PAR
from oversmoothing.lab.tasks.wsss.settings import Method


class Colours(nn.Module):
    """Stands for a network: patch p of 4, class maps are averages of colour channels."""

    class backbone:  # noqa: N801
        patch = 4

    def class_maps(self, images: Tensor) -> tuple[Tensor, Tensor]:
        maps = F.avg_pool2d(images, 4) - 0.4
        maps = maps * torch.linspace(0.2, 1, maps.shape[-1])  # left and right differ
        return maps, maps.flip(1)


@pytest.fixture
def images() -> Tensor:
    return torch.rand(3, 3, 16, 24, generator=torch.Generator().manual_seed(0))


LABELS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])


def test_present_classes_are_listed_in_order_and_padded() -> None:
    present = present_classes(LABELS)
    assert present.index.tolist() == [[0, 2, 0], [1, 0, 0], [0, 1, 2]]
    assert present.valid.tolist() == [[True, True, False], [True, False, False], [True] * 3]
    assert all(map(torch.equal, present, present_classes(LABELS, most=3)))  # known, not counted


def test_cams_match_the_formula_in_float64(images: Tensor) -> None:
    network, scales = Colours(), (1.0, 0.5, 1.7)
    present = present_classes(LABELS)
    last, aux = multi_scale_cams(network, images, present, scales)
    every = torch.zeros(3, 6, 16, 24, dtype=torch.float64)
    for scale in scales:
        size = [4 * round(scale * side / 4) for side in (16, 24)]
        x = F.interpolate(images.double(), size, mode="bilinear")
        maps = [torch.cat(network.class_maps(view), dim=1) for view in (x, x.flip(-1))]
        plain, mirrored = (F.interpolate(m, (16, 24), mode="bilinear") for m in maps)
        every += torch.maximum(plain, mirrored.flip(-1)).relu()
    lowest = every.amin(dim=(2, 3), keepdim=True)
    every = (every - lowest) / ((every - lowest).amax(dim=(2, 3), keepdim=True) + 1e-5)
    for b in range(3):
        for m in range(3):
            k = int(present.index[b, m])
            for found, expected in ((last, every[b, k]), (aux, every[b, 3 + k])):
                wanted = expected if present.valid[b, m] else torch.zeros_like(expected)
                torch.testing.assert_close(found[b, m].double(), wanted, atol=2e-5, rtol=0)


class Segments(Colours):
    def segment(self, images: Tensor) -> Tensor:
        return 9 * self.class_maps(images)[0]


@pytest.mark.parametrize("fusion", ["voc", "coco"])
def test_segmentations_are_fused_over_scales_and_mirrors(images: Tensor, fusion: str) -> None:
    network, scales, each = Segments(), (1.0, 0.5), []
    for scale in scales:
        x = F.interpolate(images[:1], [int(16 * scale), int(24 * scale)], mode="bilinear")
        views = (network.segment(view) for view in (x, x.flip(-1)))
        plain, mirrored = (F.interpolate(view, (16, 24), mode="bilinear") for view in views)
        each.append(torch.cat([plain, mirrored.flip(-1)]))
    (a, b), (c, d) = each
    sums = torch.maximum(a + b, c + d)  # voc: the larger of the scales' sums over mirrors
    fused = sums if fusion == "voc" else torch.maximum(a, b) + torch.maximum(c, d)
    found = multi_scale_probabilities(network, images[0], scales, fusion=fusion)
    torch.testing.assert_close(found, fused.softmax(dim=0))


def pseudo(cam: Tensor, present: Present, images: Tensor, box: list[int]) -> Tensor:
    boxes = torch.tensor([box] * len(cam))
    return pseudo_labels(cam, present, images, boxes, PAR(iterations=2))


def test_sure_unsure_and_background() -> None:
    """On a constant image PAR only blurs: CAMs of 1, 0.5 and 0 become class, 255 and background."""
    cam = torch.zeros(1, 2, 32, 96)
    cam[0, 1, :, :32], cam[0, 1, :, 32:64] = 1.0, 0.45
    present = Present(torch.tensor([[2, 9]]), torch.tensor([[True, True]]))
    labels = pseudo(cam, present, torch.full((1, 3, 32, 96), 0.5), [0, 32, 0, 96])
    assert (labels[0, :, 4] == 10).all() and (labels[0, :, -4] == 0).all()
    assert (labels[0, :, 48] == 255).all()


def test_only_present_classes_and_only_inside_the_box(images: Tensor) -> None:
    present = present_classes(LABELS)
    cam, _ = multi_scale_cams(Colours(), images, present)
    labels = pseudo(cam, present, images, [2, 12, 5, 20])
    assert (labels[:, :2] == 255).all() and (labels[:, :, 20:] == 255).all()
    for row, classes in zip(labels, ([1, 3], [2], [1, 2, 3])):
        assert set(row.unique().tolist()) <= {0, 255, *classes}


def test_images_of_a_batch_do_not_meet(images: Tensor) -> None:
    """Padding to the longest list of classes changes no image's labels."""
    present = present_classes(LABELS)
    cam, _ = multi_scale_cams(Colours(), images, present)
    together = pseudo(cam, present, images, [0, 16, 0, 24])
    alone = present_classes(LABELS[1:2])
    cam_alone, _ = multi_scale_cams(Colours(), images[1:2], alone)
    assert torch.equal(pseudo(cam_alone, alone, images[1:2], [0, 16, 0, 24])[0], together[1])


def test_inside_is_half_open() -> None:
    mask = inside(torch.tensor([[1, 3, 0, 2]]), 4, 3)
    assert mask[0].int().tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("own", [{"high": 0.6, "low": 0.45}, {"par_iterations": 1}])
def test_labels_follow_the_settings_of_the_method(images: Tensor, own: dict) -> None:
    network = Colours()
    network.weight = nn.Parameter(torch.zeros(1))
    present, box = present_classes(LABELS), torch.tensor([0, 16, 0, 24]).expand(3, 4)
    cam, _ = multi_scale_cams(network, images, present)
    labels = Labeller(network, Method(**own)).pseudo(cam, present, images)
    par = PAR(iterations=own.get("par_iterations", 10))
    rates = {key: value for key, value in own.items() if key != "par_iterations"}
    assert torch.equal(labels, pseudo_labels(cam, present, images, box, par, **rates))
    assert not torch.equal(labels, pseudo_labels(cam, present, images, box, PAR()))


def test_modes_are_as_before_also_after_an_error(images: Tensor) -> None:
    network = Colours().train()
    network.part = nn.Dropout().eval()
    for wrong in (False, True):
        if wrong:
            network.class_maps = None
        with pytest.raises(TypeError) if wrong else nullcontext():
            multi_scale_cams(network, images, present_classes(LABELS))
        assert network.training and not network.part.training
