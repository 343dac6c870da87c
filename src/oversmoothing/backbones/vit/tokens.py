"""What the vision transformers have in common: images in, a stream of tokens, a block at a time."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from oversmoothing.backbones.pixels import per_channel
from oversmoothing.backbones.vit import blocks as vit_blocks
from oversmoothing.backbones.vit.attention import attention_map
from oversmoothing.errors import InputError


class TokenStream(nn.Module):
    """A vision transformer without classifier; a subclass says how tokens are made of images.

    Args:
        network: with ``blocks`` and the final ``norm``.
        name: for messages.
        patch: side in pixels of the square that a token stands for.
        prefix: tokens before those of the patches (CLS, distillation).
        pretrained: whether weights are loaded.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], images are divided by it.

    Attributes:
        dim: channels C. depth: number of blocks.

    Raises:
        InputError: mean or std that are not three numbers.
    """

    def __init__(
        self,
        network: nn.Module,
        name: str,
        patch: int,
        prefix: int,
        pretrained: bool,
        mean: list[float],
        std: list[float],
    ) -> None:
        super().__init__()
        self.network = network
        self.name, self.patch, self.prefix, self.pretrained = name, patch, prefix, pretrained
        self.dim, self.depth = network.embed_dim, len(network.blocks)
        self.register_buffer("mean", per_channel("mean", mean), persistent=False)
        self.register_buffer("std", per_channel("std", std), persistent=False)

    def embed(self, images: Tensor) -> Tensor:
        """Tokens before the first block.

        Shapes: normalised images (B, 3, H, W) -> (B, prefix + H·W/patch², C).
        """
        raise NotImplementedError

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

    @torch.no_grad()
    def attention_maps(self, images: Tensor) -> Iterator[Tensor | None]:
        """Softmax attention M of every block in turn, for metrics; None where it was replaced.

        M is what the tokens are mixed with before aggregators inside act. It is formed beside the
        block, which mixes without it, so only one block's is held at a time.

        Shapes: (B, 3, H, W) -> depth × (B, heads, N, N).
        """
        x = self._tokens(images)
        for block in self.network.blocks:
            yield attention_map(block.attn, block.norm1(x))
            x = block(x)

    def to_map(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Patch tokens in their places, without prefix tokens.

        Args:
            tokens: of images of ``height`` × ``width`` pixels.

        Shapes: tokens (B, N, C) -> (B, C, H/patch, W/patch).
        """
        rows, columns = height // self.patch, width // self.patch
        return tokens[:, self.prefix :].mT.unflatten(-1, (rows, columns))

    def _tokens(self, images: Tensor) -> Tensor:
        self._check_size(*images.shape[-2:])
        return self.embed((images - self.mean) / self.std)

    def _stream(self, images: Tensor) -> Iterator[Tensor]:
        x = self._tokens(images)
        for block in self.network.blocks:
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
