"""The base class of vision transformers: from images to tokens."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from oversmoothing.adapters.blocks import block_index
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.options import per_channel
from oversmoothing.lab.backbones.vit.attention import attention_map
from oversmoothing.lab.backbones.vit.bf16 import attending


class TokenStream(nn.Module):
    """A vision transformer without classifier; subclasses implement ``embed``.

    Args:
        network: module with ``blocks`` and the final ``norm``.
        name: for error messages.
        patch: side in pixels of the square that a token represents.
        prefix: number of tokens before those of the patches (CLS, distillation).
        pretrained: whether weights are loaded.
        mean, std: of R, G and B in [0, 1], to normalise images.

    Attributes:
        dim: channels C.
        depth: number of blocks.
        name, patch, prefix, pretrained: as given.

    Raises:
        InputError: ``mean`` or ``std`` is not three numbers.
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

    @property
    def num_prefix_tokens(self) -> int:
        """``prefix`` under timm's name."""
        return self.prefix

    def embed(self, images: Tensor) -> Tensor:
        """Turns images into the tokens before the first block.

        Shapes: normalised images (B, 3, H, W) -> (B, prefix + H·W/patch², C).
        """
        raise NotImplementedError

    def forward(self, images: Tensor, take: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """Computes the tokens of images.

        Args:
            images: in [0, 1]; height and width are multiples of the patch.
            take: indices of blocks whose output is returned too; −1 is the last block.

        Returns:
            The tokens after the final norm, prefix first; and a dictionary from the indices in
            ``take`` to the residual stream after those blocks, not normalised.

        Raises:
            InputError: the size of the images is not a multiple of the patch, or a block does not
                exist.

        Shapes: images (B, 3, H, W) -> (B, N, C), each (B, N, C); N = prefix + H·W/patch².
        """
        places = {index: block_index("take", index, self.depth) for index in take}
        taken = {}
        for i, x in enumerate(self._stream(images)):
            taken |= {index: x for index, place in places.items() if place == i}
        return self.network.norm(x), taken

    def layers(self, images: Tensor) -> list[Tensor]:
        """Computes the tokens after every block. Shapes: (B, 3, H, W) -> depth × (B, N, C)."""
        return list(self._stream(images))

    @torch.no_grad()
    def attention_maps(self, images: Tensor) -> Iterator[Tensor | None]:
        """Yields the softmax attention M of every block; None if an aggregator replaces it.

        M is the matrix before aggregators of the site inside act. It is formed for one block at a
        time, so only one M is in memory.

        Shapes: (B, 3, H, W) -> depth × (B, heads, N, N).
        """
        x = self._tokens(images)
        for block in self.network.blocks:
            yield attention_map(block.attn, block.norm1(x))
            x = block(x)

    def to_map(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Arranges the patch tokens as a map and drops the prefix tokens.

        Args:
            tokens: of images of ``height`` × ``width`` pixels, (B, N, C).

        Shapes: -> (B, C, H/patch, W/patch).
        """
        rows, columns = height // self.patch, width // self.patch
        return tokens[:, self.prefix :].mT.unflatten(-1, (rows, columns))

    def _tokens(self, images: Tensor) -> Tensor:
        p, (height, width) = self.patch, images.shape[-2:]
        if min(height, width) < p or height % p or width % p:
            fitting = " × ".join(str(max(side // p, 1) * p) for side in (height, width))
            raise InputError(
                f"images of {height} × {width} pixels: {self.name} needs height and width in "
                f"multiples of its patch, {p}; crop or resize, for example to {fitting}"
            )
        return self.embed((images - self.mean) / self.std)

    def _stream(self, images: Tensor) -> Iterator[Tensor]:
        x = self._tokens(images)
        for block in self.network.blocks:
            with attending(x.device):
                x = block(x)
            yield x
