"""Dense CRF against an exact mean field and against pydensecrf."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from oversmoothing.lab.tasks.wsss.crf import CRF, dense_crf


def scene() -> tuple[Tensor, Tensor]:
    """Returns an image of two colours, 12×10, and uncertain probabilities of 4 labels."""
    generator = torch.Generator().manual_seed(0)
    left = (torch.arange(10) < 5).expand(12, 10)
    colours = torch.tensor([[200, 60, 40], [40, 90, 180]])
    noise = torch.randn(3, 12, 10, generator=generator)
    image = torch.where(left, *colours[:, :, None, None]) + 6 * noise
    logits = torch.randn(4, 12, 10, generator=generator)
    logits[0] += left
    logits[1] += ~left
    return image.clamp(0, 255).byte(), logits.softmax(dim=0)


def exact(image: Tensor, probabilities: Tensor, crf: CRF) -> Tensor:
    """The same mean field in float64, with every pair of pixels."""
    rows, columns = (torch.arange(n) for n in image.shape[1:])
    position = torch.cartesian_prod(rows, columns).double()
    colour = image.flatten(1).T.double()
    both = torch.cat([position / crf.bi_xy, colour / crf.bi_rgb], dim=1)
    mixing = 0
    for weight, f in ((crf.pos_w, position / crf.pos_xy), (crf.bi_w, both)):
        K = (-0.5 * (f[:, None] - f).square().sum(dim=-1)).exp()
        scale = K.sum(dim=1).rsqrt()
        mixing = mixing + weight * scale[:, None] * K * scale
    log_p = probabilities.double().flatten(1).clamp(1e-5, 1).log()
    Q = log_p.softmax(dim=0)
    for _ in range(crf.iterations):
        Q = (log_p + Q @ mixing).softmax(dim=0)
    return Q.view_as(probabilities)


@pytest.mark.parametrize(
    "crf",
    [CRF(), CRF(iterations=1), CRF(bi_xy=6, bi_rgb=20), CRF(bi_w=0), CRF(bi_w=0, pos_xy=3)],
    ids=str,
)
def test_is_the_exact_mean_field_up_to_the_lattice(crf: CRF) -> None:
    image, p = scene()
    ours, reference = dense_crf(image, p, crf), exact(image, p, crf)
    assert (ours - reference).abs().mean() < 0.01
    assert (ours.argmax(0) == reference.argmax(0)).double().mean() >= 0.98


def test_probabilities_sum_to_1_and_labels_may_be_permuted() -> None:
    image, p = scene()
    refined = dense_crf(image, p)
    torch.testing.assert_close(refined.sum(dim=0), torch.ones(12, 10))
    torch.testing.assert_close(dense_crf(image, p.flip(0)), refined.flip(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(dense_crf(image, p, CRF(pos_w=0, bi_w=0)), p, atol=1e-5, rtol=0)


@pytest.fixture
def photos(data_root: Path) -> list[Path]:
    masks = sorted((data_root / "VOC2012" / "SegmentationClassAug").glob("*.png"))
    return masks[:2] or pytest.skip("no VOC2012")


def photo(mask: Path) -> Tensor:
    image = Image.open(mask.parents[1] / "JPEGImages" / f"{mask.stem}.jpg").convert("RGB")
    return torch.from_numpy(np.array(image)[:160, :200]).permute(2, 0, 1)


def test_labels_of_photos_are_those_of_pydensecrf(photos: list[Path]) -> None:
    peer, crf = pytest.importorskip("pydensecrf.densecrf"), CRF()
    for number, path in enumerate(photos):
        image = photo(path)
        generator = torch.Generator().manual_seed(number)
        coarse = 2 * torch.randn(1, 21, 6, 8, generator=generator)
        _, H, W = image.shape
        p = F.interpolate(coarse, (H, W), mode="bilinear")[0].softmax(dim=0)
        field = peer.DenseCRF2D(W, H, 21)
        field.setUnaryEnergy(-p.clamp(1e-5, 1).flatten(1).log().numpy())
        field.addPairwiseGaussian(sxy=crf.pos_xy, compat=crf.pos_w)
        colours = image.permute(1, 2, 0).contiguous().numpy()
        field.addPairwiseBilateral(sxy=crf.bi_xy, srgb=crf.bi_rgb, rgbim=colours, compat=crf.bi_w)
        theirs = np.array(field.inference(crf.iterations)).reshape(21, H, W)
        ours = dense_crf(image, p, crf).numpy()
        assert (ours.argmax(0) == theirs.argmax(0)).mean() > 0.9999
        assert np.abs(ours - theirs).mean() < 1e-5


def test_noise_on_a_real_mask_is_cleaned(photos: list[Path]) -> None:
    truth = torch.from_numpy(np.array(Image.open(photos[0]))[:160, :200])
    known = truth != 255
    labels = truth[known].unique()
    generator = torch.Generator().manual_seed(0)
    logits = (truth == labels[:, None, None]) + torch.randn(
        len(labels), *truth.shape, generator=generator
    )
    p = logits.softmax(dim=0)
    before, after = (
        (labels[x.argmax(0)] == truth)[known].double().mean()
        for x in (p, dense_crf(photo(photos[0]), p))
    )
    assert after > before + 0.2
