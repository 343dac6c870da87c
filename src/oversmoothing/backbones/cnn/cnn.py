"""Convolutional networks (ResNet, MobileNetV2) of timm with an aggregator behind them."""

from collections.abc import Callable
from typing import Literal, Self

from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones import pretrained
from oversmoothing.backbones.cnn import timm_cnn as cnn_network
from oversmoothing.backbones.cnn.batch_norm import batch_norms, set_momentum, synchronised
from oversmoothing.backbones.cnn.unit import unit
from oversmoothing.backbones.pixels import MEAN, STD, per_channel
from oversmoothing.errors import InputError

__all__ = ["CNN", "synchronised"]

MULTI_GRID = [1, 2, 4]  # EMANet


class CNN(nn.Module):
    """Dilated features, reduced to ``dim`` channels, with the aggregator's unit on top.

    The layout of EMANet and EANet (their code): backbone → 3×3 convolution, BN, ReLU → ``Unit``.
    Without aggregator there is no unit: FCN's features.

    Args:
        aggregators: factories; they see pixels as tokens, (B, h·w, dim), see ``Unit``.
        name: of timm, optionally with the tag of the weights (``resnet101s.gluon_in1k``).
        weights: ``timm``, ``none`` or the path of a file, see ``pretrained.load``.
        sha256: of that file, or its first 8 or more hex digits; null: not checked.
        output_stride: 8, 16 or 32; 8 costs most.
        multi_grid: factors of the dilations in the last stage of a ResNet, one a block; null:
            the stage has one dilation. Needs output stride 8 or 16.
        dim: channels C.
        batch_norm: ``train``; ``frozen``: those of the network with weights keep their running
            statistics, scale and shift. New layers always train theirs.
        bn_momentum: weight of a new batch in running statistics.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], images are divided by it.
        same_padding: TensorFlow's padding, for weights of a MobileNetV2 trained with it.

    Attributes:
        dim, aux_dim: channels of the two maps. output_stride: pixels of the image for one of the
        first map. patch: 1, images have any size. pretrained: whether weights were loaded.
        bn_momentum: as given. network: timm's. unit: None without aggregator.

    Raises:
        InputError: unknown name, weights that cannot be had or do not fit, an option out of
            range, or aggregators that a CNN has no place for.
    """

    patch = 1

    def __init__(
        self,
        aggregators: list[Callable[..., Aggregator]],
        name: str = "resnet50",
        weights: str = "timm",
        sha256: str | None = None,
        output_stride: int = 8,
        multi_grid: list[int] | None = MULTI_GRID,
        dim: int = 512,
        batch_norm: Literal["train", "frozen"] = "train",
        bn_momentum: float = 0.1,
        mean: list[float] = MEAN,
        std: list[float] = STD,
        same_padding: bool = False,
    ) -> None:
        super().__init__()
        if dim < 1:
            raise InputError(f"backbone.dim: expected 1 or more channels, got {dim}")
        if batch_norm not in ("train", "frozen"):
            raise InputError(f"backbone.batch_norm: expected train or frozen, got {batch_norm!r}")
        self.network = cnn_network.create(name, output_stride, multi_grid, same_padding)
        self.name, self.pretrained = name, weights != "none"
        self.output_stride, self.dim = output_stride, dim
        self.aux_dim, channels = self.network.feature_info.channels()
        self.register_buffer("mean", per_channel("mean", mean), persistent=False)
        self.register_buffer("std", per_channel("std", std), persistent=False)
        pretrained.load(self.network, name, weights, sha256, cnn_network.HEADS)
        self.reduce = nn.Sequential(
            nn.Conv2d(channels, dim, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(dim),
            nn.ReLU(),
        )
        self.unit = unit(aggregators, dim)
        self.bn_momentum = bn_momentum
        set_momentum(self, bn_momentum)
        self.frozen = batch_norm == "frozen"
        if self.frozen:
            for norm in batch_norms(self.network):
                norm.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Frozen batch norms stay in evaluation mode."""
        super().train(mode)
        for norm in batch_norms(self.network) if self.frozen else []:
            norm.eval()
        return self

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Maps of images.

        Args:
            images: in [0, 1].

        Returns:
            The features, s = ``output_stride``, and what the stage before the last puts out, for
            an auxiliary head; t = min(s, 16).

        Raises:
            InputError: images smaller than s.

        Shapes: images (B, 3, H, W) -> (B, C, ⌈H/s⌉, ⌈W/s⌉), (B, aux_dim, ⌈H/t⌉, ⌈W/t⌉).
        """
        self._check_size(*images.shape[-2:])
        aux, x = self.network((images - self.mean) / self.std)
        x = self.reduce(x)
        return x if self.unit is None else self.unit(x), aux

    def _check_size(self, height: int, width: int) -> None:
        if min(height, width) < (s := self.output_stride):
            raise InputError(
                f"images of {height} × {width} pixels: {self.name} at output stride {s} needs at "
                f"least {s} × {s}; enlarge them, or choose a smaller backbone.output_stride"
            )
