"""Restores a model, torch's settings and random numbers after a measurement."""

import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from operator import is_
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from oversmoothing.adapters.masks import apart
from oversmoothing.distributed import fully_sharded

NOTHING: dict[Any, Any] = {}
KEPT = (dict, OrderedDict, list)  # attributes of these types get their contents back


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Restores what a forward pass may change: modes, buffers, attributes, random numbers.

    Of parameters it restores those that get another ``data``, and embeddings with ``max_norm``. The
    forward pass must not write into other parameters in place. Those of ``fully_shard`` are
    sharded before and after, as its own records of them are no attributes.
    """
    _reshard(model)
    written = [*model.buffers(), *_renormed(model)]
    values = [(x, x.detach().clone(), _version(x)) for x in written]
    data = [(parameter, parameter.data) for parameter in model.parameters()]
    with apart(model), same_attributes(model), same_random_numbers(model):
        try:
            yield
        finally:
            _reshard(model)
            with torch.no_grad():
                for parameter, own in data:
                    if own.layout is torch.strided and parameter.data_ptr() != own.data_ptr():
                        parameter.data = own
                for x, value, version in values:
                    if _differs(x, value, version):  # writing invalidates what autograd saved
                        x.copy_(value)


@contextmanager
def same_attributes(model: nn.Module) -> Iterator[None]:
    """Restores the attributes of all modules, with what their dictionaries and lists hold.

    Everything is restored by reference: parameters, buffers, hooks and modules are the same
    objects again. Other objects that a module changes in place stay changed.
    """
    own = [vars(module) for module in model.modules()]
    before: list[tuple[Any, Any]] = [(attributes, dict(attributes)) for attributes in own]
    held = (v for attributes in own for v in attributes.values() if type(v) in KEPT)
    before += [(v, v.copy() if v else NOTHING) for v in held]  # fewer objects for Python's gc
    try:
        yield
    finally:
        _put_back(before)


@contextmanager
def same_random_numbers(model: nn.Module) -> Iterator[None]:
    """Restores random numbers: of torch on the CPU and on a model's devices, Python, numpy.

    Generators that are attributes of the model are restored as well.
    """
    devices: dict[str, list[int]] = {"cpu": []}
    modules = [*model.modules()]
    own = [p for module in modules for p in vars(module)["_parameters"].values()]
    for device in {p.device for p in own if p is not None}:
        devices.setdefault(device.type, []).append(device.index or 0)
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(numpy.random.set_state, numpy.random.get_state())
        held = [v for m in modules for v in vars(m).values() if type(v) is torch.Generator]
        for generator in {*held}:
            stack.callback(generator.set_state, generator.get_state())
        for kind, indices in devices.items():
            if kind == "mps":  # fork_rng passes a device, which older torch.mps does not accept
                stack.callback(torch.mps.set_rng_state, torch.mps.get_rng_state())
            elif kind != "meta":
                numbers = [] if kind == "cpu" else indices
                stack.enter_context(torch.random.fork_rng(numbers, device_type=kind))
        yield


@contextmanager
def observable(models: Iterable[nn.Module]) -> Iterator[None]:
    """Context without compiled code and fused encoder layers, which hide layers from hooks."""
    fused = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        if any(_is_compiled(module) for model in models for module in model.modules()):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.callback(torch.backends.mha.set_fastpath_enabled, fused)
        torch.backends.mha.set_fastpath_enabled(False)
        yield


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Context without autocast, under which measurements would lose precision."""
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


def _put_back(before: list[tuple[Any, Any]]) -> None:
    """Gives dictionaries and lists their contents back; no key is missing in between."""
    for holder, values in before:
        if isinstance(holder, list):
            holder[:] = values
            continue
        if not holder and not values:
            continue
        if [*holder] == [*values] and all(map(is_, holder.values(), values.values())):
            continue
        holder.update(values)
        for name in [*(holder.keys() - values.keys())]:
            del holder[name]
        if [*holder] != [*values]:  # a key that was deleted has come back at the end
            for name in values:
                holder[name] = holder.pop(name)


def _reshard(model: nn.Module) -> None:
    for module in fully_sharded(model):
        module.reshard()


def _renormed(model: nn.Module) -> Iterator[Tensor]:
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            yield module.weight  # the forward pass writes into it


def _version(x: Tensor) -> int | None:
    """Returns the number of writes into a tensor; None where torch does not count them."""
    return None if x.is_inference() else x._version


def _differs(x: Tensor, value: Tensor, version: int | None) -> bool:
    if x.is_meta or x.layout is not torch.strided:
        return version is None or x._version != version
    return not same_values(x, value)


def same_values(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors have the same values; NaN equals NaN."""
    if torch.equal(x, y):
        return True
    if x.shape != y.shape or not (x.is_floating_point() or x.is_complex()):
        return False
    return bool(((x == y) | (x.isnan() & y.isnan())).all())


def _is_compiled(module: nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
