"""A stand-in for CUDA graphs on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.search import stacked
from oversmoothing.lab.tasks import nodes
from oversmoothing.lab.training import loop, replay

HOST = {"_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "masked_select", "bincount"}


class NoCopies(TorchFunctionMode):
    """Refuses ``x[i] = 1`` for one number: CUDA copies it from the host, which ends a capture."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is Tensor.__setitem__ and not torch.is_tensor(args[2]):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            whole = [own for own in index if isinstance(own, int) and not isinstance(own, bool)]
            assert len(whole) < args[0].dim(), index
        return function(*args, **(kwargs or {}))


class Tape(TorchDispatchMode):
    """Stands for a CUDA graph: repeats recorded operations on the tensors of the recording."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Callable, tuple, dict, Any]] = []
        self.fresh = True

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        places = [t for t in tree_leaves(args[1:]) if torch.is_tensor(t) and t.dtype == torch.bool]
        assert name not in HOST and not (name.startswith("index") and places), name
        output = function(*args, **(kwargs or {}))
        self.done.append((function, args, kwargs or {}, output))
        return output

    @torch.no_grad()
    def replay(self) -> None:
        """Repeats the operations, but the first time, since recording has computed them."""
        for function, *inputs, output in () if self.fresh else self.done:
            args, kwargs = tree_map_only(Tensor, Tensor.detach, inputs)
            held = {storage(t) for t in tree_leaves([args, kwargs]) if torch.is_tensor(t)}
            for old, new in zip(tree_leaves(output), tree_leaves(function(*args, **kwargs))):
                if torch.is_tensor(old) and storage(old) not in held:
                    old.detach().copy_(new)
        self.fresh = False


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def taped(function: Callable[[], Tensor], generators: Any) -> tuple[Tape, Tensor]:
    with NoCopies(), Tape() as tape:
        output = function()
    return tape, output


def use_tapes(monkeypatch: pytest.MonkeyPatch) -> list[Tape]:
    """Makes networks train as on a GPU, with tapes for CUDA graphs; returns the tapes."""
    made: list[Tape] = []

    def captured(function: Callable[[], Any], *_: Any) -> tuple[Tape, Any]:
        with NoCopies(), Tape() as tape:
            output = function()
        made.append(tape)
        return tape, output

    def set_capturable(optimizer: torch.optim.Optimizer, capturable: bool) -> None:
        for group in optimizer.param_groups if capturable else ():
            group["lr"] = torch.tensor(group["lr"], dtype=torch.float64)

    def replayable(model: nn.Module, graph: Graph, trainer: nodes.FullBatchAdam) -> bool:
        return trainer.cuda_graph and model.replayable

    for module in (nodes, stacked):
        monkeypatch.setattr(module, "replayable", replayable)
    for module in (nodes, stacked, loop):
        monkeypatch.setattr(module, "set_capturable", set_capturable)
    monkeypatch.setattr(loop, "replays", lambda trainer, device: trainer.cuda_graph)
    monkeypatch.setattr(replay, "captured", captured)
    monkeypatch.setattr(replay, "aside", lambda function: function())
    monkeypatch.setattr(replay, "memory", lambda: None)
    return made
