"""How alike the patch tokens of images are after every block: oversmoothing at work."""

from collections.abc import Iterable

import torch
from torch import Tensor

from oversmoothing.backbones.vit.vit import ViT
from oversmoothing.metrics import smoothness


@torch.no_grad()
def token_layers(backbone: ViT, batches: Iterable[Tensor]) -> dict[str, list[float]]:
    """Mean pairwise cosine and effective rank after every block, means over images.

    Patch tokens of the residual stream, measured in float64, every image by itself.

    Args:
        batches: images (B, 3, H, W) in [0, 1].

    Returns:
        ``cosine`` and ``effective_rank``, one value a block.
    """
    training = backbone.training
    backbone.eval()
    cosines, ranks = [], []
    for images in batches:
        tokens = torch.stack([x[:, backbone.prefix :] for x in backbone.layers(images)], dim=1)
        cosines.append(smoothness.mean_cosine(tokens))
        ranks.append(smoothness.effective_rank(tokens))
    backbone.train(training)
    means = {"cosine": cosines, "effective_rank": ranks}
    return {name: torch.cat(values).mean(dim=0).tolist() for name, values in means.items()}
