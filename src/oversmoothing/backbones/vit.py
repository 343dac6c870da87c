"""Vision transformers (DeiT, ViT, DeiT III) of timm with aggregators in their attention."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones import pretrained, vit_blocks, vit_network
from oversmoothing.backbones.vit_attention import equip
from oversmoothing.errors import InputError

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # of ImageNet, RGB


class ViT(nn.Module):
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

    Attributes:
        dim: channels C. depth: number of blocks. patch: side of a patch in pixels. prefix: tokens
        before the patches (CLS, distillation). pretrained: whether weights were loaded.

    Raises:
        InputError: unknown name, weights that cannot be had or do not fit, no such blocks, or
            aggregators that exclude one another.
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
    ) -> None:
        super().__init__()
        self.network = vit_network.create(name)
        self.name, self.pretrained = name, weights != "none"
        self.dim, self.depth = self.network.embed_dim, len(self.network.blocks)
        self.patch = self.network.patch_embed.patch_size[0]
        self.prefix = self.network.num_prefix_tokens
        chosen = vit_blocks.chosen(blocks, self.depth)
        self.register_buffer("mean", _per_channel("mean", mean), persistent=False)
        self.register_buffer("std", _per_channel("std", std), persistent=False)
        pretrained.load(self.network, name, weights, sha256)
        self.network.pos_embed.requires_grad_(not freeze_pos_embed)
        for i in chosen:
            equip(self.network.blocks[i], aggregators, self.prefix)

    def forward(self, images: Tensor, take: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """Tokens of images.

        Args:
            images: in [0, 1]; height and width are multiples of the patch.
            take: blocks whose output is wanted too; negative ones count from the last.

        Returns:
            Tokens after the final norm, prefix first, and, under the indices of ``take``, the
            residual stream after those blocks, not normalised.

        Raises:
            InputError: images of another size, or no such block.

        Shapes: images (B, 3, H, W) -> (B, N, C), each (B, N, C); N = prefix + H·W/patch².
        """
        places = {index: vit_blocks.place("take", index, self.depth) for index in take}
        taken = {}
        for i, x in enumerate(self._stream(images)):
            taken |= {index: x for index, place in places.items() if place == i}
        return self.network.norm(x), taken

    def layers(self, images: Tensor) -> list[Tensor]:
        """The residual stream after every block. Shapes: (B, 3, H, W) -> depth × (B, N, C)."""
        return list(self._stream(images))

    def to_map(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Patch tokens in their places, without prefix tokens.

        Args:
            tokens: of images of ``height`` × ``width`` pixels.

        Shapes: tokens (B, N, C) -> (B, C, H/patch, W/patch).
        """
        rows, columns = height // self.patch, width // self.patch
        return tokens[:, self.prefix :].mT.unflatten(-1, (rows, columns))

    def _stream(self, images: Tensor) -> Iterator[Tensor]:
        net = self.network
        self._check_size(*images.shape[-2:])
        x = net._pos_embed(net.patch_embed((images - self.mean) / self.std))
        x = net.norm_pre(x)
        for block in net.blocks:
            x = block(x)
            yield x

    def _check_size(self, height: int, width: int) -> None:
        p = self.patch
        if min(height, width) < p or height % p or width % p:
            fitting = " × ".join(str(max(side // p, 1) * p) for side in (height, width))
            raise InputError(
                f"images of {height} × {width} pixels: {self.name} needs height and width in "
                f"multiples of its patch, {p}; crop or resize to {fitting}, say"
            )


def _per_channel(key: str, values: list[float]) -> Tensor:
    if len(values) != 3 or key == "std" and not min(values) > 0:
        above = ", above 0" if key == "std" else ""
        raise InputError(f"backbone.{key}: expected three numbers{above}, got {values}")
    return torch.tensor(values, dtype=torch.float32).view(3, 1, 1)
