"""Vision transformers of timm with aggregators: ViT, DeiT and DeiT III.

Papers: Dosovitskiy et al., ICLR 2021; Touvron et al., ICML 2021; Touvron et al., ECCV 2022. The
sites are in the chosen blocks, see ``attention``.
"""

import warnings
from typing import Literal

from torch import Tensor

from oversmoothing.adapters.blocks import chosen
from oversmoothing.adapters.sites import Factory
from oversmoothing.adapters.timm import NORMS
from oversmoothing.checks import check_choice
from oversmoothing.lab.backbones import pretrained
from oversmoothing.lab.backbones.options import MEAN, STD
from oversmoothing.lab.backbones.timm_names import check_name
from oversmoothing.lab.backbones.vit.attention import equip
from oversmoothing.lab.backbones.vit.resample import resampling
from oversmoothing.lab.backbones.vit.tokens import TokenStream

EXAMPLE = "deit_small_patch16_224"
MODULES = {"vision_transformer": "", "deit": ""}  # of timm: first letters of names


class ViT(TokenStream):
    """A vision transformer without classifier for images of any size.

    Weights are loaded first. Then every chosen block gets an instance of each aggregator; other
    blocks keep timm's attention. Without aggregators the outputs equal timm's bit by bit. The
    position embedding is resampled to the size of the image as in timm (bicubic).

    Args:
        aggregators: factories. Inside, they see each head: ``mixed`` and v of shape
            (B, heads, N, C/heads), before the projection. After and instead, they see (B, N, C).
        name: timm's name of the model, with or without the tag of its weights
            (``vit_base_patch16_224.dino``).
        weights: ``timm``, ``none`` or the path of a file, see ``pretrained.load``.
        sha256: SHA-256 of that file or its first 8 or more hex digits; null: no check.
        blocks: which blocks have the aggregators: ``all``, ``last-half``, ``last-k`` or a list of
            indices from 0.
        freeze_pos_embed: do not train the position embedding.
        mean, std: of R, G and B in [0, 1], to normalise images.
        after: where aggregators of the site after act: after the attention's projection
            (``branch``), or instead of norm2 or of every LayerNorm, see ``attention.equip``.
        drop_path: rate of stochastic depth in the last block; grows linearly from 0 in the first.
        depth: number of blocks; null: the model's own. Another depth, image_size or patch than
            the model's own needs ``weights=none``.
        image_size: side in pixels of the images that the position embedding is made for; null:
            the model's own.
        patch: side of a patch in pixels; null: the model's own.

    Raises:
        InputError: the name is unknown, weights are missing or do not fit, sizes differ from those
            of the weights, blocks do not exist, or aggregators exclude each other.
    """

    def __init__(
        self,
        aggregators: list[Factory],
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
        check_name(name, MODULES, "a vision transformer", EXAMPLE)
        from oversmoothing.lab.backbones.vit import timm_vit  # imports timm, which takes seconds

        loaded = weights != "none"
        network = timm_vit.create(name, drop_path, depth, image_size, patch)
        if loaded and (depth, image_size, patch) != (None, None, None):
            timm_vit.require_own(network, name)
        side, prefix = network.patch_embed.patch_size[0], network.num_prefix_tokens
        super().__init__(network, name, side, prefix, loaded, mean, std)
        indices = chosen(blocks, self.depth, "backbone.blocks")
        check_choice("backbone.after", after, NORMS)
        pretrained.load(network, name, weights, sha256)
        network.pos_embed.requires_grad_(not freeze_pos_embed)
        if freeze_pos_embed and not loaded:
            warnings.warn(
                "backbone.weights=none: the position embedding is random and stays so; set "
                "backbone.freeze_pos_embed=false to train it",
                stacklevel=2,
            )
        equip(network, indices, aggregators, prefix, after)

    def embed(self, images: Tensor) -> Tensor:
        """Embeds patches, prefix and positions. Shapes: (B, 3, H, W) -> (B, N, C)."""
        net = self.network
        with resampling(images.device):
            return net.norm_pre(net._pos_embed(net.patch_embed(images)))
