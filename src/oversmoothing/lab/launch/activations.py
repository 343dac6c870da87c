"""Counts the memory of activations that a network saves for its backward pass."""

import contextlib
import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from oversmoothing.errors import InputError


def activations(
    network: nn.Module, inputs: Callable[[], tuple], autocast: torch.autocast | None = None
) -> int:
    """Counts the bytes that a forward pass in training saves, without computing anything.

    The pass is run by a copy of the network on fake tensors, which have shapes but no content.

    Args:
        network: its parameters are not counted.
        inputs: returns the arguments of a call.
        autocast: context of the pass.

    Returns:
        The bytes; 0 if the network cannot run on fake tensors.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # imports torch's compiler: a second

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    own = [*network.parameters(), *network.buffers()]
    twins = {id(tensor): _twin(tensor, fake) for tensor in own}
    known = {twin.untyped_storage()._cdata for twin in twins.values()}
    kept: dict[int, torch.UntypedStorage] = {}  # storages stay alive, so that keys stay unique

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    try:
        with fake, hooks, autocast or contextlib.nullcontext():
            copy.deepcopy(network, twins).train()(*inputs())
    except InputError:
        raise
    except Exception:  # a custom operator, or one that depends on values
        return 0
    return sum(storage.nbytes() for storage in kept.values())


def _twin(tensor: Tensor, fake: TorchDispatchMode) -> Tensor:
    sizes, kind = (tensor.shape, tensor.stride()), {"dtype": tensor.dtype, "device": tensor.device}
    with fake:  # converting the tensor itself would leave a weak reference, which forbids swapping
        twin = torch.empty_strided(*sizes, **kind)
    return nn.Parameter(twin, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else twin
