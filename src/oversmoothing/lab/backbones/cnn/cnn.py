"""Convolutional networks of timm (ResNet, MobileNetV2) with aggregators on their features.

Papers: He et al., CVPR 2016; Sandler et al., CVPR 2018. The layout is that of the code of EMANet
and EANet. The sites are in one residual unit on top of the features, see ``unit``. There is no site
inside, since convolutions have no mixing matrix.
"""

from typing import Literal, Self

import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from oversmoothing import distributed
from oversmoothing.adapters.sites import Factory
from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones import pretrained
from oversmoothing.lab.backbones.cnn.bf16 import convolving
from oversmoothing.lab.backbones.cnn.unit import unit
from oversmoothing.lab.backbones.options import MEAN, STD, check_positive, per_channel
from oversmoothing.lab.backbones.timm_names import check_name

MULTI_GRID = [1, 2, 4]  # EMANet
MODULES = {"resnet": "", "efficientnet": "mobilenetv2_"}  # of timm: first letters of names


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
        batch_norm: ``train``, or ``frozen``: batch norms of the network with weights keep their
            running statistics, scale and shift. New layers always train theirs.
        bn_momentum: weight of a new batch in running statistics.
        mean, std: of R, G and B in [0, 1], to normalise images.
        same_padding: TensorFlow's padding, for weights of a MobileNetV2 trained with it.

    Attributes:
        dim: channels of the features.
        aux_dim: channels of the map for an auxiliary head.
        output_stride: as given.
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
        from oversmoothing.lab.backbones.cnn import timm_cnn  # imports timm, which takes seconds

        super().__init__()
        check_positive(dim=dim)
        check_choice("backbone.batch_norm", batch_norm, ("train", "frozen"))
        self.network = timm_cnn.create(name, output_stride, multi_grid, same_padding)
        self.name, self.pretrained = name, weights != "none"
        self.output_stride, self.dim = output_stride, dim
        self.aux_dim, channels = self.network.feature_info.channels()
        self.register_buffer("mean", per_channel("mean", mean), persistent=False)
        self.register_buffer("std", per_channel("std", std), persistent=False)
        pretrained.load(self.network, name, weights, sha256, timm_cnn.HEADS)
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
