"""Vision transformers of timm with aggregators: ViT, DeiT and DeiT III.

Papers: Dosovitskiy et al., ICLR 2021; Touvron et al., ICML 2021; Touvron et al., ECCV 2022. The
sites are in the chosen blocks, see ``vit_attention``.
"""

import contextlib
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.attention import Replacing
from oversmoothing.adapters.blocks import block_index, chosen
from oversmoothing.adapters.calls import Current
from oversmoothing.adapters.sites import Factory
from oversmoothing.checks import require
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones import pretrained
from oversmoothing.lab.backbones.options import (
    MEAN,
    STD,
    check_positive,
    check_rate,
    per_channel,
)
from oversmoothing.lab.backbones.pretrained import check_name, create
from oversmoothing.lab.backbones.vit_attention import After, attending, attention_map, during, equip

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer

EXAMPLE = "deit_small_patch16_224"
MODULES = {"vision_transformer": "", "deit": ""}  # of timm: first letters of names


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
        current: keeps the values of the first block for methods that read them, else None.

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
        self.current: Current | None = None
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
        yield from during(self.current, self._maps(self._tokens(images)))

    def _maps(self, x: Tensor) -> Iterator[Tensor | None]:
        for block in self.network.blocks:
            first = not isinstance(block, PostNormBlock)
            yield attention_map(block.attn, block.norm1(x) if first else x)
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
        return during(self.current, self._blocks(self._tokens(images)))

    def _blocks(self, x: Tensor) -> Iterator[Tensor]:
        for block in self.network.blocks:
            with attending(x.device):
                x = block(x)
            yield x


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
            (``branch``), or instead of norm2 or of every LayerNorm, or on the ``sum`` before norm1
            of a post-norm network, see ``vit_attention.equip``.
        drop_path: rate of stochastic depth in the last block; grows linearly from 0 in the first.
        depth: number of blocks; null: the model's own. Another depth, image_size or patch than
            the model's own needs ``weights=none``.
        image_size: side in pixels of the images that the position embedding is made for; null:
            the model's own.
        patch: side of a patch in pixels; null: the model's own.
        layer_scale: initial factor of every branch, which is learned per channel (LayerScale, CaiT,
            ICCV 2021; near 0 as in ReZero); null: the model's own.
        post_norm: LayerNorms after the residual sums (Vaswani et al., NeurIPS 2017) in place of
            before the branches and after the last block; needs ``weights=none``.

    Raises:
        InputError: the name is unknown, weights are missing or do not fit, sizes differ from those
            of the weights, blocks do not exist, or aggregators exclude each other.
    """

    def __init__(
        self,
        aggregators: list[Factory],
        name: str = EXAMPLE,
        weights: str = "timm",
        sha256: str | None = None,
        blocks: str | list[int] = "all",
        freeze_pos_embed: bool = True,
        mean: list[float] = MEAN,
        std: list[float] = STD,
        after: After = "branch",
        drop_path: float = 0.0,
        depth: int | None = None,
        image_size: int | None = None,
        patch: int | None = None,
        layer_scale: float | None = None,
        post_norm: bool = False,
    ) -> None:
        check_name(name, MODULES, "a vision transformer", EXAMPLE)
        loaded = weights != "none"
        if post_norm and loaded:
            raise InputError(
                "backbone.post_norm: published weights are of networks with the norms first; set "
                "it to false, or backbone.weights=none"
            )
        network = create_vit(name, drop_path, depth, image_size, patch, layer_scale)
        if post_norm:
            network.blocks = nn.Sequential(*map(PostNormBlock, network.blocks))
            network.norm = nn.Identity()
        if loaded and (depth, image_size, patch) != (None, None, None):
            require_own(network, name)
        side, prefix = network.patch_embed.patch_size[0], network.num_prefix_tokens
        super().__init__(network, name, side, prefix, loaded, mean, std)
        indices = chosen(blocks, self.depth, "backbone.blocks")
        pretrained.load(network, name, weights, sha256)
        network.pos_embed.requires_grad_(not freeze_pos_embed)
        if freeze_pos_embed and not loaded:
            warnings.warn(
                "backbone.weights=none: the position embedding is random and stays so; set "
                "backbone.freeze_pos_embed=false to train it",
                stacklevel=2,
            )
        self.current = equip(network, indices, aggregators, prefix, after)

    def embed(self, images: Tensor) -> Tensor:
        """Embeds patches, prefix and positions. Shapes: (B, 3, H, W) -> (B, N, C)."""
        net = self.network
        with resampling(images.device):
            return net.norm_pre(net._pos_embed(net.patch_embed(images)))


class PostNormBlock(nn.Module):
    """A block of timm whose LayerNorms follow the residual sums (Vaswani et al., NeurIPS 2017).

    .. math:: x ← norm1(x + attention(x)),  x ← norm2(x + mlp(x))

    Args:
        block: its modules are taken, under their names.

    Attributes:
        sum: identity, a place for aggregators.

    Shapes: x (B, N, C) -> (B, N, C).
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        for name, part in block.named_children():
            self.add_module(name, part)
        self.sum = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.sum(x + self.drop_path1(self.ls1(self.attn(x)))))
        return self.norm2(x + self.drop_path2(self.ls2(self.mlp(x))))


def create_vit(
    name: str,
    drop_path: float = 0.0,
    depth: int | None = None,
    image_size: int | None = None,
    patch: int | None = None,
    layer_scale: float | None = None,
) -> "VisionTransformer":
    """Builds a vision transformer of timm without classifier, with random weights, for any size.

    Args:
        name: timm's name of the model, with or without the tag of its weights.
        drop_path: rate of stochastic depth in the last block; grows linearly from 0 in the first.
        depth, image_size, patch: number of blocks, sides of the images and of a patch in pixels;
            None: the model's own.
        layer_scale: initial factor of the branches; None: the model's own.

    Raises:
        InputError: the model is not a plain vision transformer, or a size is out of range.
    """
    check_rate("drop_path", drop_path)
    check_positive(depth=depth, image_size=image_size, patch=patch)
    fits = layer_scale is None or 0 < layer_scale < math.inf
    require("backbone", layer_scale=(layer_scale, fits, "a number above 0, or null"))
    network = create(
        name,
        num_classes=0,
        dynamic_img_size=True,
        drop_path_rate=drop_path,
        depth=depth,
        img_size=image_size,
        patch_size=patch,
        init_values=layer_scale,
    )
    if not _is_plain(network):
        raise InputError(
            f"backbone.name: {name} is not a plain vision transformer (pre-norm blocks, position "
            f"embedding, no pooling); choose for example {EXAMPLE}"
        )
    resized = (image_size, patch) != (None, None)
    if resized and (sizes := _sizes(network))["image_size"] % sizes["patch"]:
        raise InputError(
            f"backbone.image_size: expected a multiple of the patch, {sizes['patch']}, "
            f"got {sizes['image_size']}; change it or backbone.patch"
        )
    return network


def require_own(network: "VisionTransformer", name: str) -> None:
    """Checks that a network has the sizes of the model's weights.

    Raises:
        InputError: depth, image_size or patch differ from the model's own.
    """
    import timm

    with torch.device("meta"):
        own = _sizes(timm.create_model(name, num_classes=0))
    for key, got in _sizes(network).items():
        if got != own[key]:
            raise InputError(
                f"backbone.{key}: the weights of {name} are for {own[key]}, got {got}; set it to "
                "null, or backbone.weights=none to start at random"
            )


def _sizes(network: "VisionTransformer") -> dict[str, int]:
    embed = network.patch_embed
    depth, side, patch = len(network.blocks), embed.img_size[0], embed.patch_size[0]
    return {"depth": depth, "image_size": side, "patch": patch}


def _is_plain(network: nn.Module) -> bool:
    """Whether ``ViT`` uses every parameter of a network."""
    from timm.layers.attention import Attention
    from timm.models.vision_transformer import Block, VisionTransformer

    return (
        isinstance(network, VisionTransformer)
        and all(type(b) is Block and type(b.attn) is Attention for b in network.blocks)
        and all(block.attn.gate is None for block in network.blocks)
        and network.pos_embed is not None
        and network.attn_pool is None
        and isinstance(network.fc_norm, nn.Identity)
    )


def resampling(device: torch.device) -> contextlib.AbstractContextManager:
    """Context in which antialiased interpolation is deterministic if torch's setting requires it.

    timm resamples position embeddings by antialiased interpolation, whose gradient in torch is not
    deterministic on GPUs.
    """
    wanted = torch.are_deterministic_algorithms_enabled() and device.type != "cpu"
    return Replacing(F.interpolate, _interpolate) if wanted else contextlib.nullcontext()


def _interpolate(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return (interpolated if kwargs.get("antialias") else F.interpolate)(x, *args, **kwargs)


def interpolated(x: Tensor, size: tuple[int, int], **options: Any) -> Tensor:
    """Computes ``F.interpolate`` of images by matrix products in float64, where TF32 is not used.

    Shapes: (B, C, H, W) -> (B, C, *size).
    """
    rows, columns = (_matrix(n, m, x, options) for n, m in zip(x.shape[-2:], size))
    return (rows.T @ x.double() @ columns).to(x.dtype)


def _matrix(n: int, m: int, x: Tensor, options: dict[str, Any]) -> Tensor:
    """Returns the weights of n old pixels in m new pixels, (n, m) float64."""
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        pixels = torch.eye(n, device=x.device)[None, None]
        return F.interpolate(pixels, size=(n, m), **options)[0, 0].double()
