"""Batch normalisation of whole networks: momentum, frozen layers, several processes."""

import torch.distributed as dist
from timm.layers import convert_sync_batchnorm
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from oversmoothing.errors import InputError


def batch_norms(network: nn.Module) -> list[_BatchNorm]:
    """All of a network, synchronised ones included."""
    return [module for module in network.modules() if isinstance(module, _BatchNorm)]


def set_momentum(network: nn.Module, momentum: float) -> None:
    """Sets the weight of a new batch in all running statistics.

    Raises:
        InputError: not in (0, 1].
    """
    if not 0 < momentum <= 1:
        raise InputError(
            f"backbone.bn_momentum: expected a number above 0 and at most 1, got {momentum}; "
            "it weighs the new batch: 0.1 is torch's, 3e-4 EMANet's"
        )
    for norm in batch_norms(network):
        norm.momentum = momentum


def synchronised(network: nn.Module) -> nn.Module:
    """Batch statistics over all processes, where several train on GPUs.

    torch synchronises batch norms on GPUs only: elsewhere the network stays as it is, and every
    process normalises by its own share of the batch. Weights keep their names. To be called
    before DistributedDataParallel, on the CPU or on the GPU.

    Returns:
        The same network, its batch norms replaced.
    """
    on_gpus = dist.is_initialized() and dist.get_backend() == "nccl"
    # timm's, since torch's drops the activation that timm's MobileNets keep in their batch norms
    return convert_sync_batchnorm(network) if on_gpus and dist.get_world_size() > 1 else network
