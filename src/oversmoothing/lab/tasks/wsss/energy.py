"""The dense energy loss L_reg.

Tang et al.: On Regularized Losses for Weakly-supervised CNN Segmentation, ECCV 2018
(https://arxiv.org/abs/1803.09569), with the gate of ToCo (https://arxiv.org/abs/2303.01267).

The loss needs the unnormalised bilateral filter

.. math:: (A S)_i = \\sum_j \\exp(−½|f_i − f_j|²) S_j,

j = i included, without gradient. The features f are those of the dense CRF (Krähenbühl, Koltun
2011, https://arxiv.org/abs/1210.5644, Eq. 3).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.lab.data.image_set import IGNORE
from oversmoothing.lab.tasks.wsss.labels import inside
from oversmoothing.lab.tasks.wsss.lattice import Lattice, position_and_colour


@torch.no_grad()
def filtered(features: Tensor, values: Tensor) -> Tensor:
    """Computes A S on the permutohedral lattice, with the factor of ToCo's compiled filter.

    Equals that filter (meng-tang/rloss) to 1e-5. ⟨S, A S⟩ is 0.52 to 0.61 times its true value; the
    weight of L_reg was chosen with it.

    Shapes: features (B, N, D), values (B, N, C) -> (B, N, C).
    """
    plan = Lattice(features, fixed=features.device.type != "cpu")
    return plan(values) / (1 + 2.0 ** -features.shape[-1])


def dense_energy(
    images: Tensor,
    logits: Tensor,
    labels: Tensor,
    box: Tensor,
    sigma_rgb: float = 15.0,
    sigma_xy: float = 100.0,
    scale: float = 0.5,
    num_images: int | None = None,
) -> Tensor:
    r"""Computes the dense energy; it is low if near pixels of similar colour are predicted alike.

    .. math:: L = -\frac1N ⟨S, g · A S⟩

    S are the softmax probabilities on a grid resized by ``scale``, zero outside the box.
    A_ij = exp(−½|f_i − f_j|²) with f = (x/σ_xy, y/σ_xy, rgb/σ_rgb) includes i = j and is not
    normalised. The gate g = max(0, 1 − max_k S) is 1 where the pseudo label is 255. Since A is not
    normalised, L grows with the square of the number of pixels; the papers weight it by about 1e-7.

    The gradient is the papers' −2 g · A S / N inside the box, that of −⟨S, A S⟩/N with the gate
    applied afterwards. The exact gradient of L for constant g would be −(g · A S + A (g · S)) / N.

    Args:
        images: in [0, 1].
        logits: background and K classes, at the images' size.
        labels: pseudo labels; only used to find pixels of value 255.
        box: row0, row1, col0, col1 of the image within its padding, half-open.
        sigma_rgb: on the 0–255 scale.
        sigma_xy: in pixels of ``images``.
        scale: of the grid; images, labels and boxes are resized by nearest neighbour.
        num_images: N, the size of the whole batch; None: that of ``images``.

    Shapes: images (B, 3, H, W), logits (B, 1+K, H, W), labels (B, H, W), box (B, 4) -> ().
    """
    size = [int(side * scale) for side in images.shape[-2:]]
    with torch.autocast(images.device.type, enabled=False):
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        S = F.interpolate(precise.softmax(dim=1), size, mode="bilinear", align_corners=False)
        with torch.no_grad():
            small = F.interpolate(images.to(S.dtype), size)
            features = position_and_colour(small, sigma_rgb, sigma_xy * scale)
            within = _nearest(inside(box, *images.shape[-2:]), size)
            ignored = _nearest(labels == IGNORE, size)
            gate = torch.where(ignored, 1.0, (1 - S.amax(dim=1)).clamp_(min=0)) * within
            AS = filtered(features, (S * within[:, None]).flatten(2).mT)
            gated = gate[:, None] * AS.mT.view_as(S)
        energy = -(S * gated).sum() / (num_images or len(images))
        return 2 * energy - energy.detach()  # doubles the gradient but not the value


def _nearest(mask: Tensor, size: list[int]) -> Tensor:
    """Resizes a mask by nearest neighbour. Shapes: bool (B, H, W) -> bool (B, *size)."""
    return F.interpolate(mask[:, None].to(torch.uint8), size)[:, 0].bool()
