"""Finds the repeated blocks of a model and chooses among them; names the places in BERT layers."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import signature
from numbers import Integral
from typing import NamedTuple

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from oversmoothing.adapters.attention import Swapped
from oversmoothing.adapters.calls import Current
from oversmoothing.adapters.site import Site
from oversmoothing.adapters.sites import Factory
from oversmoothing.errors import InputError

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
COMPILED = "_orig_mod"  # torch.compile's name for the module that it wraps
SINGLE = ("torch.nn.", "torch_geometric.nn.dense.linear", "torch_geometric.nn.norm")


def find_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Returns the repeated blocks of a model, by name, in their order.

    Blocks are the children of a ``ModuleList``, ``ModuleDict`` or ``Sequential`` whose children
    have parameters and are all of one class. The container with the most parameters sets the class;
    the children of other containers of this class are also blocks, as in a ResNet or a T5, also if
    they have one child. Without any, the graph convolutions of torch-geometric are used, then the
    largest ``ModuleList`` of blocks of several classes, then containers of single layers, such as
    Linear, then containers of one child, as in an ALBERT, which calls one block several times.

    Raises:
        InputError: the model has no repeated blocks.
    """
    every = list(_containers(model, ""))
    alike = [(name, stack) for name, stack in every if not _plain(_kind(stack))]
    convolutions = {readable(n): m for n, m in model.named_modules() if convolves(m)}
    if not alike and len(convolutions) > 1:
        return convolutions
    stacks = alike or _largest(_mixed(model)) or every or [*_containers(model, "", 1)]
    if not stacks:
        examples = _examples(model)
        way = f"name the modules to look at, for example layers={examples}"
        raise InputError(
            f"layers: found no repeated blocks in {type(model).__name__}; "
            f"{way if examples else 'give the model around it'}"
        )
    kind = _kind(_largest(stacks)[0][1])
    if alike and not issubclass(kind, CONTAINERS):
        stacks = [*_containers(model, "", 1, kind)]
    return {
        readable(f"{name}.{index}".lstrip(".")): uncompiled(block)
        for name, stack in stacks
        if _kind(stack) is kind
        for index, block in stack.named_children()
    }


def stacks_beside(model: nn.Module, layers: Iterable[str]) -> list[str]:
    """Returns globs of the lists of blocks of one class that none of some layers belongs to."""
    names = [readable(name) for name, stack in _containers(model, "") if not _plain(_kind(stack))]
    return [f"{own}.*" for own in names if not any(name.startswith(f"{own}.") for name in layers)]


def readable(name: str) -> str:
    """Returns the name of a module without the parts that torch.compile adds."""
    return ".".join(part for part in name.split(".") if part != COMPILED)


def uncompiled(module: nn.Module) -> nn.Module:
    """Returns the module that torch.compile has wrapped, or the module itself."""
    return getattr(module, COMPILED, module)


def convolves(module: nn.Module) -> bool:
    """Whether a module is a graph convolution of torch-geometric, and not a wrapper of one."""
    return hasattr(module, "propagate") and module is uncompiled(module)


def chosen(blocks: str | Sequence[int], depth: int, key: str = "blocks") -> list[int]:
    """Returns the indices, from 0, of the blocks that an option names.

    Args:
        blocks: ``all``, ``last-half`` (of 13 blocks: 6), ``last-k``, or a list of indices;
            negative ones count from the end.
        depth: number of blocks.
        key: of the option, for error messages.

    Raises:
        InputError: an unknown word, or a block that does not exist.
    """
    if isinstance(blocks, str):
        indices = [*_named(blocks, depth)]
    else:
        indices = [*blocks] if hasattr(blocks, "__iter__") else []
    if not indices:
        raise InputError(
            f"{key}: expected all, last-half, last-1 to last-{depth}, or a list of "
            f"indices from 0 to {depth - 1} (-1: the last), got {blocks!r}"
        )
    return sorted({block_index(key, index, depth) for index in indices})


def _named(word: str, depth: int) -> range:
    """Returns the blocks that a word such as ``last-half`` stands for; none if it is unknown."""
    counts = {"all": depth, "last-half": max(1, depth // 2)}
    last = re.fullmatch(r"last-(\d+)", word)
    count = int(last[1]) if last else counts.get(word, 0)
    return range(depth - count, depth) if count <= depth else range(0)


def block_index(key: str, index: int, depth: int) -> int:
    """Returns the index of a block from 0; −1 is the last. The error names ``key``."""
    whole = isinstance(index, Integral) and not isinstance(index, bool)  # also NumPy's
    if not whole or not -depth <= index < depth:
        raise InputError(f"{key}: expected blocks from {-depth} to {depth - 1}, got {index!r}")
    return int(index) % depth


def _containers(
    module: nn.Module, name: str, least: int = 2, kind: type[nn.Module] | None = None
) -> Iterator[tuple[str, nn.Module]]:
    """Yields the outermost containers of ``least`` or more blocks of one class (``kind``)."""
    if isinstance(module, Site):
        return
    children = list(module.children())
    alike = isinstance(module, CONTAINERS) and len(children) >= least and _alike(children)
    alike = alike and kind in (None, _class(children[0]))
    if alike and not isinstance(children[0], nn.ModuleList):  # stages, as in timm's Twins
        yield name, module
        return
    for own, child in module.named_children():
        if own != "parametrizations" or not is_parametrized(module):
            yield from _containers(child, f"{name}.{own}".lstrip("."), least, kind)


def _mixed(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields lists of two or more blocks of several classes."""
    for name, module in model.named_modules():
        listed = isinstance(module, nn.ModuleList) and not isinstance(module, ParametrizationList)
        children = list(module.children()) if listed else []
        if len(children) > 1 and all(not _plain(_class(c)) and _learns(c) for c in children):
            yield name, module


def _largest(containers: Iterable[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Returns the container with the most parameters; an empty list if there is none."""
    found = list(containers)
    return found if len(found) < 2 else [max(found, key=lambda named: _size(named[1]))]


def _alike(children: Sequence[nn.Module]) -> bool:
    return len({_class(child) for child in children}) == 1 and _learns(children[0])


def _kind(container: nn.Module) -> type[nn.Module]:
    return _class(next(container.children()))


def _class(module: nn.Module) -> type[nn.Module]:
    """Returns the class of a module, without aggregators inside it and parametrised weights."""
    module = uncompiled(module)
    if is_parametrized(module):  # torch makes a class for each such module
        return type(module).__mro__[1]
    return module.plain if isinstance(module, Swapped) else type(module)


def _plain(kind: type[nn.Module]) -> bool:
    """Whether a class is a single layer of a library, such as Linear, Embedding or LayerNorm."""
    blocks = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, *CONTAINERS)
    return kind.__module__.startswith(SINGLE) and not issubclass(kind, blocks)


def _learns(module: nn.Module) -> bool:
    """Whether a module has parameters; another process may hold all their numbers."""
    return any(True for _ in module.parameters())


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _examples(model: nn.Module) -> list[str]:
    """Returns the names of two modules of the most frequent class, or of the first ones."""
    named = {n: m for n, m in model.named_modules() if n and _learns(m)}
    blocks = {n: m for n, m in named.items() if not _plain(_class(m))} or named
    kinds = Counter(map(_class, blocks.values())).most_common(1)
    return [name for name, module in blocks.items() if _class(module) is kinds[0][0]][:2]


class Place(NamedTuple):
    """A place directly before or directly after a module of a layer."""

    module: str
    before: bool


class LayerPlaces(NamedTuple):
    """Names of the modules of a layer: self-attention, its output projection, and the places.

    The comments below give the number of a place in BERT for ``--pos`` of ContraNorm's code.
    """

    attention: str
    projection: str
    places: Mapping[str, Place]

    def fits(self, layer: nn.Module) -> bool:
        """Whether a layer has the modules of all places."""
        names = {name for name, _ in layer.named_modules()}
        return {place.module for place in self.places.values()} <= names


BERT = LayerPlaces(
    "attention.self",
    "attention.output.dense",
    {
        "input": Place("attention", True),  # 1
        "context": Place("attention.output.dense", True),  # 2
        "projection": Place("attention.output.dropout", False),  # 3
        "attention_norm": Place("attention.output.LayerNorm", False),  # 4
        "ffn": Place("output.dropout", False),  # 5
        "output": Place("output.LayerNorm", False),  # 6
        "attention_sum": Place("attention.output.LayerNorm", True),  # 7
        "ffn_sum": Place("output.LayerNorm", True),  # 8
    },
)
ALBERT = LayerPlaces(
    "attention",
    "attention.dense",
    {
        "input": Place("attention", True),
        "context": Place("attention.dense", True),
        "projection": Place("attention.output_dropout", False),
        "attention_norm": Place("attention.LayerNorm", False),
        "ffn": Place("ffn_output", False),
        "output": Place("full_layer_layer_norm", False),
        "attention_sum": Place("attention.LayerNorm", True),
        "ffn_sum": Place("full_layer_layer_norm", True),
    },
)
TEXT_LAYERS = (BERT, ALBERT)
WINDOWED = "timm.models.swin_transformer.SwinTransformerBlock"
TOKENS_FIRST = (  # layers that get and return (N, B, C), without an attribute that says so
    "transformers.models.fsmt.modeling_fsmt.DecoderLayer",
    "transformers.models.fsmt.modeling_fsmt.EncoderLayer",
    "transformers.models.xlnet.modeling_xlnet.XLNetLayer",
)


def tokens_first(layer: nn.Module) -> bool:
    """Whether the tokens of a layer of transformers are (N, B, C)."""
    kind = _class(layer)
    return f"{kind.__module__}.{kind.__name__}" in TOKENS_FIRST


def windows(block: nn.Module) -> bool:
    """Whether a block, not a stage of several, has attention over windows.

    Such blocks are in timm's Swin and in transformers' Swin, SwinV2, Donut and CLAP.
    """
    kind = _class(block)
    if kind.__module__.startswith("transformers."):
        takes = signature(kind.forward).parameters
        return "input_dimensions" in takes and hasattr(block, "shift_size")
    return f"{kind.__module__}.{kind.__name__}" == WINDOWED


class Choice(NamedTuple):
    """The chosen blocks of a model.

    Args:
        blocks: by name, in their order.
        every: all blocks of the model, chosen or not.
        named: whether the user named the blocks one by one.
    """

    blocks: Mapping[str, nn.Module]
    every: Mapping[str, nn.Module]
    named: bool

    @property
    def last(self) -> nn.Module:
        """The model's last block."""
        return [*self.every.values()][-1]


class Asked(NamedTuple):
    """What ``apply`` asks of the function ``place`` of a library's adapter.

    Args:
        model: the model.
        choice: of its blocks.
        factories: of the aggregators.
        where: place of those that act after the mixing; None: the usual one.
        current: groups of tokens, for the new sites.
    """

    model: nn.Module
    choice: Choice
    factories: Sequence[Factory]
    where: str | None
    current: Current


def choose(model: nn.Module, blocks: str | Sequence[int]) -> Choice:
    """Chooses among the repeated blocks of a model.

    Raises:
        InputError: the model has no repeated blocks, or the chosen ones do not exist.
    """
    try:
        found = {name: m for name, m in model.named_modules() if ALBERT.fits(m) or windows(m)}
        found = found or find_blocks(model)  # which takes the groups of an ALBERT for blocks
    except InputError as error:
        raise InputError(
            f"model: found no repeated blocks in {type(model).__name__}; give a block alone as "
            "nn.ModuleList([block]); for a method after the mixing in another model give where= as "
            "a pattern of names of modules that return tokens (B, N, C)"
        ) from error
    names = list(found)
    some = {names[i]: found[names[i]] for i in chosen(blocks, len(found))}
    named = not isinstance(blocks, str) or blocks not in ("all", "last-half")
    return Choice(some, found, named)
