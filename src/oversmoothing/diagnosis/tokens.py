"""Chooses the layers of a model to look at, and finds the tokens in what a layer returns."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.blocks import find_blocks, readable
from oversmoothing.adapters.names import fits
from oversmoothing.adapters.prefix import parents_of
from oversmoothing.adapters.site import LAYOUTS, MEANING
from oversmoothing.errors import InputError, meant

Layers = str | nn.Module | Iterable[str | nn.Module] | None
TORCH_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
NORMS = nn.BatchNorm2d | nn.GroupNorm | nn.InstanceNorm2d
TEMPORAL = (nn.Conv1d, nn.BatchNorm1d, nn.InstanceNorm1d)  # their outputs are (B, C, N)
SEQUENTIAL = (nn.MultiheadAttention, nn.RNNBase)  # with batch_first


def choose_layers(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    """Returns the layers to look at, by name.

    Args:
        layers: None: the repeated blocks. Else a name, a glob of names such as ``convs.*``, a
            module of the model, or a list of these. A ``*`` matches no dot.

    Raises:
        InputError: no repeated blocks, or a name, glob or module that the model does not have.
    """
    found = _chosen(model, layers)
    for name, module in found.items():
        if isinstance(module, torch.jit.ScriptModule):
            raise InputError(
                f"layers: {name} is a module of torch.jit, which takes no hooks; give the model "
                "that was scripted or traced"
            )
    return found


def _chosen(model: nn.Module, layers: Layers) -> dict[str, nn.Module]:
    if layers is None:
        return dict(_whole(model, name, block) for name, block in find_blocks(model).items())
    modules = {readable(name): module for name, module in model.named_modules() if name}
    single = isinstance(layers, str | nn.Module) or not isinstance(layers, Iterable)
    wanted: list[Any] = [layers] if single else list(layers)  # type: ignore[arg-type]
    if strange := [one for one in wanted if not isinstance(one, str | nn.Module)]:
        raise InputError(f"layers: expected names, globs or modules, got {strange[0]!r}")
    if not wanted:
        raise InputError("layers: got an empty list; name modules, or leave layers out")
    return {name: module for one in wanted for name, module in _matches(modules, one).items()}


def _whole(model: nn.Module, name: str, block: nn.Module) -> tuple[str, nn.Module]:
    """Returns the layer of all types of edges around the convolution of one, or the block."""
    for path, parent in parents_of(model, name).items():
        kinds = [*parent] if isinstance(parent, nn.ModuleDict) else [""]
        of_kinds = bool(kinds) and all("__" in kind for kind in kinds)
        if path and (of_kinds or type(parent).__name__ == "HeteroConv"):
            return path, parent
    return name, block


def _matches(modules: dict[str, nn.Module], wanted: str | nn.Module) -> dict[str, nn.Module]:
    if isinstance(wanted, nn.Module):
        found = {name: module for name, module in modules.items() if module is wanted}
        if not found:
            raise InputError(
                f"layers: got a {type(wanted).__name__} that is not a module of the model; take it "
                "from model.named_modules()"
            )
        return found
    found = {name: module for name, module in modules.items() if fits(name, wanted)}
    if not found:
        raise InputError(f"layers: {wanted!r} matches no module; {meant(wanted, modules)}")
    return found


def find_tokens(
    name: str,
    layer: nn.Module,
    output: Any,
    layout: str | None,
    size: int | None,
    graph: bool,
    flat: bool = False,
) -> tuple[Tensor, str]:
    """Returns the tensor of a layer that holds its tokens or nodes, and its layout.

    Args:
        name: of the layer, for error messages.
        layout: of the layer's tensor, one of ``LAYOUTS``; None: inferred if it is unambiguous.
        size: B of the inputs, if known.
        graph: whether nodes of a graph are expected.
        flat: whether tokens (N, C) may be one row of packed sequences.

    Raises:
        InputError: there are no tokens, or the layout is ambiguous.
    """
    dims = (len(layout),) if layout else (2, 3) if graph else (2, 3, 4) if flat else (3, 4)
    found = list(_tensors(output))
    fitting = [x for x in found if not x.is_nested and x.dim() in dims and not _is_map(x, found)]
    x = next((x for x in fitting if _has_batch(layer, x, layout, size)), next(iter(fitting), None))
    if x is None:
        shapes = ", ".join(map(_shape, found)) or type(output).__name__
        raise InputError(
            f"layers: {name} ({type(layer).__name__}) returns no tokens {_expected(dims)}, "
            f"but {shapes}; for nodes of a graph give edges= or batch=, for packed sequences "
            f"segments=, else layout={'|'.join(LAYOUTS)}, or choose other layers"
        )
    _require_one_kind(name, output, dims)
    layout = layout or ("BNC" if graph and x.dim() == 3 else _certain(name, layer, x, size))
    return x, layout


def _tensors(output: Any) -> Iterator[Tensor]:
    """Yields the floating tensors of an output, the last hidden state first."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        first = ["last_hidden_state"] if "last_hidden_state" in output else []
        for key in [*first, *(key for key in output if key not in first)]:
            yield from _tensors(output[key])
    elif isinstance(output, tuple | list):
        for value in output:
            yield from _tensors(value)
    elif is_dataclass(output):
        for own in fields(output):
            yield from _tensors(getattr(output, own.name))


def _shape(x: Tensor) -> str:
    return "a nested tensor" if x.is_nested else str(tuple(x.shape))


def _is_map(x: Tensor, others: Iterable[Tensor]) -> bool:
    """Whether x is an attention map (B, heads, N, N) beside tokens (B, N, C)."""
    tokens = [y.shape[1:] for y in others if y.dim() == 3]
    return x.dim() == 4 and any(x.shape[2:] == (N, N) and x.shape[1] != C for N, C in tokens)


def _has_batch(layer: nn.Module, x: Tensor, layout: str | None, size: int | None) -> bool:
    second = layout == "NBC" or layout is None and _batch_first(layer) is False
    return size in x.shape[:2] if second else x.shape[0] == size


def _require_one_kind(name: str, output: Any, dims: tuple[int, ...]) -> None:
    """Checks that a dictionary of tensors has tokens of one kind, unlike a heterogeneous graph."""
    if not isinstance(output, Mapping) or "last_hidden_state" in output:
        return
    kinds = [str(k) for k, x in output.items() if isinstance(x, Tensor) and x.dim() in dims]
    if len(kinds) > 1:
        raise InputError(
            f"layers: {name} returns tokens of several kinds, {', '.join(kinds)}; choose layers "
            "that return one of them"
        )


def _certain(name: str, layer: nn.Module, x: Tensor, size: int | None) -> str:
    if x.dim() == 2:
        return "NC"
    if x.dim() == 4:
        return _of_image(name, layer, x)
    batch_first = _batch_first(layer)
    if isinstance(layer, (*TORCH_LAYERS, *SEQUENTIAL)):
        return "BNC" if batch_first else "NBC"
    if batch_first is False or size not in (None, x.shape[0]) and size == x.shape[1]:
        raise _unclear(name, x, "NBC or BNC")
    return _of_sequence(name, layer, x)


def _batch_first(layer: nn.Module) -> bool | None:
    """Returns ``batch_first`` of torch's sequence modules in a layer; None without any."""
    return next((bool(m.batch_first) for m in layer.modules() if isinstance(m, SEQUENTIAL)), None)


def _of_sequence(name: str, layer: nn.Module, x: Tensor) -> str:
    """Returns BCN for outputs of one-dimensional convolutions, else BNC."""
    channels = {getattr(m, "out_channels", getattr(m, "num_features", 0))
                for m in layer.modules() if isinstance(m, TEMPORAL)}  # fmt: skip
    if x.shape[1] not in channels:
        return "BNC"
    if x.shape[2] in channels | _widths(layer) and not isinstance(layer, TEMPORAL):
        raise _unclear(name, x, "BCN or BNC")
    return "BCN"


def _of_image(name: str, layer: nn.Module, x: Tensor) -> str:
    """Returns the layout of a feature map by the widths of the modules that make it."""
    C, W = x.shape[1], x.shape[3]
    of_norms = {getattr(m, "num_features", getattr(m, "num_channels", 0))
                for m in layer.modules() if isinstance(m, NORMS)}  # fmt: skip
    of_convolutions = {m.out_channels for m in layer.modules() if isinstance(m, nn.Conv2d)}
    if C in of_norms or (C in of_convolutions and C != W):
        return "BCHW"
    widths = of_norms | of_convolutions | _widths(layer)
    if (C in widths) == (W in widths):
        raise _unclear(name, x, "BCHW or BHWC")
    return "BCHW" if C in widths else "BHWC"


def _widths(layer: nn.Module) -> set[int]:
    """The numbers of channels that the linear layers and layer norms of a layer return."""
    widths = {m.out_features for m in layer.modules() if isinstance(m, nn.Linear)}
    return widths | {m.normalized_shape[-1] for m in layer.modules() if isinstance(m, nn.LayerNorm)}


def _unclear(name: str, x: Tensor, layouts: str) -> InputError:
    return InputError(
        f"layout: {name} returns {tuple(x.shape)}, which could be {layouts}; give layout= one of "
        f"them ({MEANING})"
    )


def _expected(dims: tuple[int, ...]) -> str:
    return "(N, C)" if 2 in dims else "(B, N, C)"
