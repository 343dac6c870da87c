"""Counts FLOPs, launches and memory of a step, operator by operator."""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

NO_LAUNCH = ("empty", "_local", "detach", "_unsafe_view", "promote_types")


class Counting(TorchDispatchMode):
    """Context that counts operators, for fake and for real tensors.

    Attributes:
        flops: of matrix products, convolutions and fused attention; two per multiply-add.
        launches: operators that compute, excluding views and allocations.
        bytes: of all live tensors that were created in the context.
        peak: largest ``bytes`` so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.launches = self.bytes = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        computes = not function.is_view and not name.startswith(NO_LAUNCH)
        if computes and function.namespace != "prim":
            self.launches += 1
            self.flops += _flops(function, args, kwargs or {}, out)
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._hold(leaf)
        return out

    def _hold(self, tensor: Tensor) -> None:
        """Counts a storage until it is freed."""
        parts = [tensor] if tensor.layout == torch.strided else [tensor.values()]
        for storage in (part.untyped_storage() for part in parts):
            key, size = storage._cdata, storage.nbytes()
            if key in self._known:
                continue
            self._known.add(key)
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.bytes -= size


def _flops(function: Any, args: tuple, kwargs: dict[str, Any], out: Any) -> int:
    sparse = [a for a in args if isinstance(a, Tensor) and a.layout == torch.sparse_csr]
    if sparse:  # two per entry and channel
        return 2 * sparse[0].values().numel() * out.shape[-1]
    formula = flop_registry.get(function.overloadpacket)
    return formula(*args, **kwargs, out_val=out) if formula else 0
