"""The inputs of a model: one call of its forward for each batch."""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from oversmoothing.errors import InputError, described


@dataclass(frozen=True, eq=False)
class Call:
    """The arguments of one call of a model.

    Args:
        args, kwargs: of ``forward``.
        named: the same arguments by the names of forward's parameters, as far as these are known.
        data: tensors of the batch that are not arguments (``edge_index``, ``batch``).
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    named: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)

    def tensor(self, name: str) -> Tensor | None:
        """Returns the tensor with a name; None if there is none."""
        found = (source.get(name) for source in (self.named, self.data))
        return next((value for value in found if isinstance(value, Tensor)), None)

    def shapes(self) -> list[torch.Size]:
        """Returns the shapes of the arguments that are tensors with two axes or more."""
        return shapes_of((*self.args, *self.kwargs.values()))

    def copied(self) -> "Call":
        """Returns the call with copies of the arguments, which a model may change in place."""
        args, kwargs = tree_map(_copied, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)


def calls(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    batches: Iterable[Any] | None,
    batch: Tensor | None,
    device: torch.device | None,
) -> Iterator[Call]:
    """Yields one call for each batch, its tensors on the device of the model.

    Args:
        batch: the graph of every node; passed on if forward has such a parameter.
        batches: tensors, tuples of arguments, dictionaries of keyword arguments, or torch-geometric
            data; None: the one batch ``args``, ``kwargs``.

    Raises:
        InputError: neither inputs nor batches are given, or both, or there is no batch.
    """
    wanted = inspect.signature(model.forward).parameters
    given = named(model.forward, args, kwargs)
    if batch is not None and "batch" in wanted and "batch" not in given:
        kwargs = {**kwargs, "batch": batch}
    if batches is None:
        if not args and not kwargs and any(p.default is p.empty for p in wanted.values()):
            raise InputError(
                "inputs: got none; diagnose(model, *inputs), or diagnose(model, batches=…)"
            )
        data = len(args) == 1 and _is_data(args[0])
        yield _of_batch(model, args[0] if data else args, kwargs, device)
        return
    _require_iterable(batches, args)
    empty = True
    for one in batches:
        empty = False
        yield _of_batch(model, one, kwargs, device)
    if empty:
        raise InputError("batches: got no batch; check that the loader is not empty or used up")


@contextmanager
def explained(what: str, way: str) -> Iterator[None]:
    """Context in which an error of other code, such as a function of the user, names the way out.

    Args:
        what: begins the message, such as ``loss: the function``.
    """
    try:
        yield
    except (InputError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise InputError(f"{what} fails ({described(error)}); {way}") from error


def has_forward(model: nn.Module) -> bool:
    """Whether a module can be called, unlike a ModuleList and many modules of Lightning."""
    owner = next(kind for kind in type(model).__mro__ if "forward" in vars(kind))
    return "forward" in vars(model) or owner.__name__ not in ("Module", "LightningModule")


def _require_iterable(batches: Any, args: tuple[Any, ...]) -> None:
    if args:
        raise InputError("batches: expected instead of inputs, got both; leave one of them out")
    if isinstance(batches, Tensor | str | Mapping) or not isinstance(batches, Iterable):
        raise InputError(
            f"batches: expected an iterable of inputs, got {type(batches).__name__}; "
            "put it into a list, batches=[…]"
        )


def _of_batch(model: nn.Module, batch: Any, kwargs: dict[str, Any], device: Any) -> Call:
    if _is_data(batch):
        return _of_data(model, batch, kwargs, device)
    if isinstance(batch, Mapping):
        return _call(model, (), {**batch, **kwargs}, device)
    args = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    return _call(model, args, kwargs, device)


def _call(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], device: Any) -> Call:
    args = tuple(_moved(value, device) for value in args)
    kwargs = {name: _moved(value, device) for name, value in kwargs.items()}
    if any(isinstance(x, Tensor) and x.is_nested for x in (*args, *kwargs.values())):
        raise InputError("inputs: got a nested tensor; give a padded (B, N, C), and mask= (B, N)")
    return Call(args, kwargs, named(model.forward, args, kwargs))


def _of_data(model: nn.Module, data: Any, kwargs: dict[str, Any], device: Any) -> Call:
    """Calls with the fields of a graph that are parameters of forward, or else with the graph."""
    data = copy.copy(data).to(device) if device is not None else data  # data.to() is in place
    wanted = inspect.signature(model.forward).parameters
    if callable(getattr(data, "collect", None)):  # HeteroData: dictionaries by type
        fields = {f"{name}_dict": data.collect(name, allow_empty=True) for name in data.keys()}  # noqa: SIM118
        fields |= {name: fields[f"{name}_dict"] for name in wanted if f"{name}_dict" in fields}
    else:
        fields = {name: data[name] for name in data.keys()}  # noqa: SIM118, Data is no dict
    passed = {name: fields[name] for name in wanted if name in fields and name not in kwargs}
    kwargs = {name: _moved(value, device) for name, value in kwargs.items()}
    # An argument that is named batch is the vector beside other fields, and else the whole graph.
    args, kwargs = ((), passed | kwargs) if passed.keys() - {"batch"} else ((data,), kwargs)
    return Call(args, kwargs, named(model.forward, args, kwargs), fields)


def _is_data(batch: Any) -> bool:
    return callable(getattr(batch, "keys", None)) and (
        hasattr(batch, "edge_index") or callable(getattr(batch, "collect", None))
    )


def shapes_of(values: Iterable[Any]) -> list[torch.Size]:
    """Returns the shapes of the tensors with two axes or more."""
    return [x.shape for x in values if isinstance(x, Tensor) and x.dim() > 1]


def named(forward: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns arguments by the names of forward's parameters, as far as these are known."""
    try:
        bound = signature_of(forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # the call itself will raise the error
        return dict(kwargs)
    return bound | kwargs


def signature_of(forward: Callable) -> inspect.Signature:
    """Returns the signature of a module's forward, which modules of one class share."""
    if not inspect.ismethod(forward):
        return inspect.signature(forward)
    return _bound_signature(forward.__func__)


@cache
def _bound_signature(function: Callable) -> inspect.Signature:
    return inspect.signature(MethodType(function, object()))


def _copied(value: Any) -> Any:
    """Copies a tensor or a graph, or any other object that can be copied."""
    if isinstance(value, Tensor) or _is_data(value):
        return value.clone()
    try:
        return copy.deepcopy(value)
    except (RuntimeError, TypeError):  # such as a generator
        return value


def _moved(value: Any, device: torch.device | None) -> Any:
    if isinstance(value, dict):
        return {name: _moved(one, device) for name, one in value.items()}
    if device is None or not callable(getattr(value, "to", None)) or not hasattr(value, "device"):
        return value
    return value.to(device)
