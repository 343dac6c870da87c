"""Convolutional networks of timm (ResNet, MobileNetV2) with aggregators on their features.

Papers: He et al., CVPR 2016; Sandler et al., CVPR 2018. The layout is that of the code of EMANet
and EANet. The sites are in one residual unit on top of the features, see ``Unit``. There is no site
inside, since convolutions have no mixing matrix.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oversmoothing import distributed
from oversmoothing.adapters.attention import Replacing
from oversmoothing.adapters.sites import Chain, Factory, Sites
from oversmoothing.aggregators.base import Aggregator, Context
from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones import pretrained
from oversmoothing.lab.backbones.options import (
    MEAN,
    STD,
    check_positive,
    in_bf16_on_cpu,
    per_channel,
)
from oversmoothing.lab.backbones.pretrained import check_name, create

MULTI_GRID = [1, 2, 4]  # EMANet
MODULES = {"resnet": "", "efficientnet": "mobilenetv2_"}  # of timm: first letters of names
STRIDES = (8, 16, 32)
HEADS = ("fc.", "classifier.", "conv_head.", "bn2.")  # not used here; at the top level only
MOBILE = "mobilenetv2_"


class CNN(nn.Module):
    """Dilated features, reduced to ``dim`` channels, with the unit of the aggregators on top.

    The network is: backbone → 3×3 convolution, BN, ReLU → ``Unit``. Without aggregators there is no
    unit, which gives the features of an FCN.

    Args:
        aggregators: factories; they see pixels as tokens, (B, h·w, dim), see ``Unit``.
        name: timm's name of the network, with or without the tag of its weights
            (``resnet101s.gluon_in1k``).
        weights: ``timm``, ``none`` or the path of a file, see ``pretrained.load``.
        sha256: SHA-256 of that file or its first 8 or more hex digits; null: no check.
        output_stride: 8, 16 or 32; 8 costs most.
        multi_grid: factors on the dilations in the last stage of a ResNet, one for each block;
            null: one dilation for the stage. Needs output stride 8 or 16.
        dim: channels C.
        batch_norm: ``train``, or ``frozen``: the batch norms of timm's network keep their running
            statistics, scale and shift. Those of the layers on top of it are always trained.
        bn_momentum: weight of a new batch in running statistics.
        mean, std: of R, G and B in [0, 1], to normalise images.
        same_padding: TensorFlow's padding, for weights of a MobileNetV2 trained with it.

    Attributes:
        dim: channels of the features.
        aux_dim: channels of the map for an auxiliary head.
        output_stride: as given.
        patch: 1; images may have any height and width from the output stride.
        pretrained: whether weights were loaded.
        network: timm's.
        unit: None without aggregators.

    Raises:
        InputError: the name is unknown, weights are missing or do not fit, an option is out of
            range, or a CNN has no site for an aggregator.
    """

    patch = 1

    def __init__(
        self,
        aggregators: list[Factory],
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
        check_name(name, MODULES, "a ResNet or MobileNetV2", "resnet50")
        super().__init__()
        check_positive(dim=dim)
        check_choice("backbone.batch_norm", batch_norm, ("train", "frozen"))
        self.network = create_cnn(name, output_stride, multi_grid, same_padding)
        self.name, self.pretrained = name, weights != "none"
        self.output_stride, self.dim = output_stride, dim
        self.aux_dim, channels = self.network.feature_info.channels()
        self.register_buffer("mean", per_channel("mean", mean), persistent=False)
        self.register_buffer("std", per_channel("std", std), persistent=False)
        pretrained.load(self.network, name, weights, sha256, HEADS)
        self.reduce = nn.Sequential(
            nn.Conv2d(channels, dim, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(dim),
            nn.ReLU(),
        )
        self.unit = unit(aggregators, dim)
        self.bn_momentum = bn_momentum
        set_momentum(self, bn_momentum)
        self.frozen = batch_norm == "frozen"
        for norm in batch_norms(self.network) if self.frozen else ():
            norm.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> Self:
        """Sets the mode; frozen batch norms stay in evaluation mode."""
        super().train(mode)
        for norm in batch_norms(self.network) if self.frozen else []:
            norm.eval()
        return self

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Computes two maps of images.

        Args:
            images: in [0, 1].

        Returns:
            The features, and the output of the second-to-last stage, for an auxiliary head.

        Raises:
            InputError: images smaller than the output stride.

        Shapes: images (B, 3, H, W) -> (B, C, ⌈H/s⌉, ⌈W/s⌉), (B, aux_dim, ⌈H/t⌉, ⌈W/t⌉);
            s = ``output_stride``, t = min(s, 16).
        """
        s, (height, width) = self.output_stride, images.shape[-2:]
        if min(height, width) < s:
            raise InputError(
                f"images of {height} × {width} pixels: {self.name} at output stride {s} needs at "
                f"least {s} × {s}; enlarge them, or choose a smaller backbone.output_stride"
            )
        with convolving(images.device):
            aux, x = self.network((images - self.mean) / self.std)
        x = self.reduce(x)
        return x if self.unit is None else self.unit(x), aux


class Unit(nn.Module):
    """Aggregation over pixels with a residual connection.

    .. math:: x ← relu(x + BN(W₂ σ(A(W₁ x + b₁))))

    A applies the aggregators: first the one of the site instead, if any, then those of the site
    after. σ is ReLU if the first has ``relu_after``, as in the EMA unit of EMANet (Li et al., ICCV
    2019, Sec. 3.4, and its code). Otherwise σ is the identity, as in the unit of EANet's code (Guo
    et al., TPAMI 2022).

    W₁ and W₂ are 1×1 convolutions, drawn from N(0, 2/C). W₁ and b₁ are frozen if no gradient flows
    through A.

    Args:
        aggregators: in the order in which they act; at most one of the site instead.
        dim: channels C.

    Shapes: x (B, C, H, W) -> (B, C, H, W); the aggregators see (B, H·W, C).
    """

    def __init__(self, aggregators: Sequence[Aggregator], dim: int) -> None:
        super().__init__()
        instead = [a for a in aggregators if a.site == "instead"]
        self.aggregators = Chain(aggregators)
        self.relu = any(a.relu_after for a in instead)
        self.conv1 = nn.Conv2d(dim, dim, kernel_size=1)
        self.conv2 = nn.Conv2d(dim, dim, kernel_size=1, bias=False)
        self.norm = nn.BatchNorm2d(dim)
        for conv in (self.conv1, self.conv2):
            nn.init.normal_(conv.weight, std=(2 / dim) ** 0.5)
        self.conv1.requires_grad_(all(a.passes_gradient for a in instead))

    def forward(self, x: Tensor) -> Tensor:
        B, C, H, W = x.shape
        tokens = self.conv1(x).flatten(2).mT  # (B, H·W, C)
        mixed = self.aggregators(tokens, Context()).mT.unflatten(-1, (H, W))
        if mixed.stride() != x.stride():  # batch norms and sums of different layouts are slow
            mixed = torch.empty_like(x).copy_(mixed)
        mixed = mixed.relu() if self.relu else mixed
        return (x + self.norm(self.conv2(mixed))).relu_()


def unit(factories: list[Factory], dim: int) -> Unit | None:
    """Builds a unit with new instances of the aggregators; returns None if there are none.

    Raises:
        InputError: an aggregator of the site inside, or two of the site instead.
    """
    sites = Sites(factories, dim, "backbone cnn", ("instead", "after"))
    if not sites.has("instead", "after"):
        return None
    return Unit([*sites.build("instead", dim), *sites.build("after", dim)], dim)


def create_cnn(
    name: str, output_stride: int, multi_grid: list[int] | None, same_padding: bool
) -> nn.Module:
    """Builds a network with random weights that returns the maps of its last two stages.

    Beyond ``output_stride``, stages dilate their convolutions instead of striding. The first block
    of such a stage keeps the dilation of the stage before.

    Args:
        name: timm's name of the network, with or without the tag of its weights.
        output_stride: stride of the last map in pixels of the image.
        multi_grid: see ``set_multi_grid``; None: no multi-grid.
        same_padding: use TensorFlow's padding, which is uneven at strides.

    Raises:
        InputError: the network does not have an option.

    Shapes: images (B, 3, H, W) -> [(B, C₃, ⌈H/s₃⌉, ⌈W/s₃⌉), (B, C₄, ⌈H/s₄⌉, ⌈W/s₄⌉)].
    """
    _check(name, output_stride, multi_grid, same_padding)
    padding = {"pad_type": "same"} if same_padding else {}
    network = create(
        name, features_only=True, out_indices=(3, 4), output_stride=output_stride, **padding
    )
    if multi_grid is not None:
        set_multi_grid(network.layer4, multi_grid)
    return network


def set_multi_grid(stage: nn.Sequential, factors: list[int]) -> None:
    """Multiplies the dilations in the last stage of a ResNet (DeepLabv3's multi-grid).

    Chen et al., 2017, Rethinking Atrous Convolution, Sec. 3.1. As in EMANet's code, the first
    block keeps half the dilation of the stage. With factors [1, 2, 4] the dilations are 2, 8, 16
    at output stride 8, and 1, 4, 8 at output stride 16.

    Args:
        stage: of timm's ResNet, dilated.
        factors: one for each block; the first is 1.

    Raises:
        InputError: the factors are not of this form.
    """
    if len(factors) != len(stage) or factors[0] != 1 or min(factors) < 1:
        raise InputError(
            f"backbone.multi_grid: expected {len(stage)} whole numbers from 1, one for each block "
            f"of the last stage and 1 for the first, got {list(factors)}; null: no multi-grid"
        )
    for block, factor in zip(stage, factors):
        for conv in block.modules():
            if isinstance(conv, nn.Conv2d) and conv.kernel_size != (1, 1):
                conv.dilation = tuple(factor * d for d in conv.dilation)
                conv.padding = tuple(factor * p for p in conv.padding)


def _check(name: str, output_stride: int, multi_grid: list[int] | None, same_padding: bool) -> None:
    mobile = name.startswith(MOBILE)
    if output_stride not in STRIDES:
        raise InputError(f"backbone.output_stride: expected 8, 16 or 32, got {output_stride}")
    if multi_grid is not None and (mobile or output_stride == 32):
        why = f"{name} lacks the" if mobile else "output stride 32 dilates no"
        raise InputError(f"backbone.multi_grid: expected null, got {list(multi_grid)}: {why} stage")
    if same_padding and not mobile:
        raise InputError(
            f"backbone.same_padding: expected false, got true: timm pads {name} evenly; only "
            "MobileNetV2 has this option"
        )


def batch_norms(network: nn.Module) -> list[_BatchNorm]:
    """Returns all batch norms of a network, synchronised ones included."""
    return [module for module in network.modules() if isinstance(module, _BatchNorm)]


def set_momentum(network: nn.Module, momentum: float) -> None:
    """Sets the weight of a new batch in the running statistics of all batch norms.

    Raises:
        InputError: ``momentum`` is not in (0, 1].
    """
    if not 0 < momentum <= 1:
        raise InputError(
            f"backbone.bn_momentum: expected a number above 0 and at most 1, got {momentum}; "
            "it is the weight of a new batch: torch uses 0.1, EMANet 3e-4"
        )
    for norm in batch_norms(network):
        norm.momentum = momentum


def synchronised(network: nn.Module) -> nn.Module:
    """Makes batch norms use the statistics of all processes if several train on GPUs.

    torch synchronises batch norms only on GPUs. On CPUs the network stays as it is, and every
    process normalises by its own share of the batch. The names of weights stay the same. Call this
    before DistributedDataParallel; the network may be on the CPU or the GPU.
    """
    from timm.layers import convert_sync_batchnorm

    on_gpus = distributed.initialized() and "nccl" in dist.get_backend_config()
    # timm's function, since torch's drops the activation in the batch norms of timm's MobileNets
    return convert_sync_batchnorm(network) if on_gpus and dist.get_world_size() > 1 else network


def convolving(device: torch.device) -> contextlib.AbstractContextManager:
    """Context in which depthwise convolutions with a stride or a dilation are computed in fp32.

    In fp32 their forward and backward passes take 0.13 to 0.62 of the time in bf16, on a CPU with
    AVX512-BF16. All other convolutions are faster in bf16.
    """
    replaced = in_bf16_on_cpu(device)
    return Replacing(F.conv2d, _conv2d) if replaced else contextlib.nullcontext()


def _conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolves, in fp32 if that is faster; the output is in bf16."""
    options = (bias, stride, padding, dilation, groups)
    if groups == 1 or stride in (1, (1, 1)) and dilation in (1, (1, 1)):
        return F.conv2d(x, weight, *options)
    with torch.autocast("cpu", enabled=False):
        return F.conv2d(x.float(), weight, *options).bfloat16()
