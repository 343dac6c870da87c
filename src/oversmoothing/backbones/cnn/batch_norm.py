"""Options of all batch norms in a network: momentum, and statistics over several processes."""

import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from oversmoothing.errors import InputError


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

    Returns:
        The same network.
    """
    from timm.layers import convert_sync_batchnorm

    on_gpus = dist.is_initialized() and dist.get_backend() == "nccl"
    # timm's: torch's drops the activation that timm's MobileNets have in their batch norms
    return convert_sync_batchnorm(network) if on_gpus and dist.get_world_size() > 1 else network
