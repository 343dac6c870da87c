"""Vision transformers (DeiT, ViT, DeiT III) of timm with aggregators in them."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones import pretrained
from oversmoothing.backbones.pixels import MEAN, STD
from oversmoothing.backbones.vit import blocks as vit_blocks
from oversmoothing.backbones.vit import norms as vit_norms
from oversmoothing.backbones.vit import timm_vit as vit_network
from oversmoothing.backbones.vit.tokens import TokenStream


class ViT(TokenStream):
    """A vision transformer without classifier for images of any size.

    Aggregators are put in once the weights are loaded, an instance of each in every chosen block.
    All other blocks keep timm's own attention: without aggregators the numbers are timm's, bit by
    bit. The position embedding is resampled to the image as timm does (bicubic).

    Args:
        aggregators: factories; those inside see ``mixed`` and v per head, (B, heads, N, C/heads),
            before the projection; those after and instead see (B, N, C), see ``vit_attention``.
        name: of timm, optionally with the tag of the weights (``vit_base_patch16_224.dino``).
        weights: ``timm``, ``none`` or the path of a file, see ``pretrained.load``.
        sha256: of that file, or its first 8 or more hex digits; null: not checked.
        blocks: which have the aggregators: ``all``, ``last-half``, ``last-k`` or a list of
            0-based indices.
        freeze_pos_embed: do not train the position embedding.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], images are divided by it.
        after: where aggregators of the site after act: behind the attention's projection, in the
            place of norm2, or of every LayerNorm, see ``vit_norms``.
        drop_path: rate at which whole branches are dropped in training; grows linearly from 0 in
            the first block to this in the last.
        depth: number of blocks; None: the model's own. This, image_size and patch can differ from
            the model's own only where nothing is loaded.
        image_size: side in pixels of the images that the position embedding is made for, likewise.
        patch: side of a patch in pixels, likewise.

    Attributes:
        dim: channels C. depth: number of blocks. patch: side of a patch in pixels. prefix: tokens
        before the patches (CLS, distillation). pretrained: whether weights were loaded.

    Raises:
        InputError: unknown name, weights that cannot be had or do not fit, sizes that the weights
            do not have, no such blocks, or aggregators that exclude one another.
    """

    def __init__(
        self,
        aggregators: list[Callable[..., Aggregator]],
        name: str = "deit_small_patch16_224",
        weights: str = "timm",
        sha256: str | None = None,
        blocks: str | list[int] = "all",
        freeze_pos_embed: bool = True,
        mean: list[float] = MEAN,
        std: list[float] = STD,
        after: Literal["branch", "norm2", "norms"] = "branch",
        drop_path: float = 0.0,
        depth: int | None = None,
        image_size: int | None = None,
        patch: int | None = None,
    ) -> None:
        loaded = weights != "none"
        network = vit_network.create(name, drop_path, depth, image_size, patch)
        if loaded and (depth, image_size, patch) != (None, None, None):
            vit_network.require_own(network, name)
        side, prefix = network.patch_embed.patch_size[0], network.num_prefix_tokens
        super().__init__(network, name, side, prefix, loaded, mean, std)
        chosen = vit_blocks.chosen(blocks, self.depth)
        vit_norms.check_after(after)
        pretrained.load(network, name, weights, sha256)
        network.pos_embed.requires_grad_(not freeze_pos_embed)
        vit_norms.equip(network, chosen, aggregators, prefix, after)

    def embed(self, images: Tensor) -> Tensor:
        """Patches with prefix and position embedding. Shapes: (B, 3, H, W) -> (B, N, C)."""
        net = self.network
        return net.norm_pre(net._pos_embed(net.patch_embed(images)))
