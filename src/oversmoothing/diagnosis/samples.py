"""Splits the tokens of a call into samples: images, sentences without padding, graphs.

``Plan`` reads the inputs of a call. For every layer it gives the samples in the layer's tokens,
``Sequences`` or ``Graphs``. ``Padding`` finds the mask that applies to a layer.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.prefix import parents_of, prefix_of, suffix_of
from oversmoothing.checks import check_edges
from oversmoothing.diagnosis.calls import Call, named, shapes_of
from oversmoothing.errors import InputError
from oversmoothing.metrics.smoothness import Tokens

Edges = tuple[Tensor, Tensor | None]  # (2, E), and their weights (E,)
MOST_SORTED = 10_000_000  # edges of a graph that are checked for their reverse, to save memory
OF_PATCHES = ("pixel_attention_mask", "patch_attention_mask", "patch_valid")
PARAMETERS = {  # of forward, and those of decoders beside an encoder
    "attention_mask": "decoder_attention_mask",
    "src_key_padding_mask": "tgt_key_padding_mask",
    **{of_patches: of_patches for of_patches in OF_PATCHES},
}
NAMES = (*PARAMETERS, *PARAMETERS.values())
CACHE = "past_key_values"


@dataclass(frozen=True, eq=False)
class Sequences:
    """A batch of images or sentences with tokens (B, N, C).

    Args:
        prefix, suffix: numbers of leading and of trailing tokens that are left out.
        parts: number of parts of a sample, such as windows, that follow each other along B.
        keep: true for tokens that are not padding, (B, N); None: all.
    """

    unit: ClassVar[Literal["tokens"]] = "tokens"
    isolated: ClassVar[int] = 0
    one_way: ClassVar[int] = 0
    repeated: ClassVar[int] = 0
    prefix: int = 0
    suffix: int = 0
    parts: int = 1
    keep: Tensor | None = None

    def split(self, x: Tensor) -> Iterator[tuple[Tokens, None]]:
        """Yields the tokens of the samples with two or more. Shapes: x (B, N, C) -> (b, n, C)."""
        x = self._joined(x)
        keep = x.new_ones(x.shape[:2], dtype=torch.bool) if self.keep is None else self.keep
        keep = keep if self.keep is None else self._joined(keep)
        several = keep.sum(dim=1) > 1
        x, keep = (x, keep) if several.all() else (x[several], keep[several])
        if len(x):
            yield Tokens(x, None if keep.all() else keep), None

    def sizes(self, x: Tensor) -> list[int]:
        """Returns the number of tokens of every sample."""
        keep = torch.ones(x.shape[:2], dtype=torch.bool) if self.keep is None else self.keep
        return self._joined(keep).sum(1).tolist()

    def left_out(self) -> list[str]:
        """Describes which tokens are left out."""
        around = ((self.prefix, "prefix"), (self.suffix, "detection"))
        found = [f"{n} {what} token{'s' * (n > 1)}" for n, what in around if n]
        padded = self.keep is not None and not bool(self.keep.all())
        return found + ["padding"] * padded

    def _joined(self, x: Tensor) -> Tensor:
        """Joins the tokens of a sample. Shapes: (B, N, ...) -> (B/parts, parts·n, ...)."""
        x = x[:, self.prefix : max(self.prefix, x.shape[1] - self.suffix)]
        return x.unflatten(0, (-1, self.parts)).flatten(1, 2)

    def check(self, name: str, x: Tensor) -> None:
        """Raises InputError if the mask does not fit the tokens."""
        if self.keep is not None and self.keep.shape != x.shape[:2]:
            raise InputError(
                f"mask: expected {tuple(x.shape[:2])}, the samples and tokens of {name}, got "
                f"{tuple(self.keep.shape)}; give mask= with true for every token that counts"
            )


class Graphs:
    """A batch of graphs with nodes (N, C).

    Args:
        num_nodes: N.
        batch: the graph of every node, (N,); None: one graph.
        edges: (2, E), both directions of every edge; None: unknown.
        weight: of the edges, (E,); None: 1.

    Attributes:
        isolated: number of nodes without neighbours in graphs of several nodes, 0 if the edges are
            unknown.
        one_way, repeated: numbers of edges whose reverse is missing, and that are listed before; 0
            in a graph of more than ``MOST_SORTED`` edges.

    Raises:
        InputError: the batch vector or the edges do not fit the nodes.
    """

    unit: ClassVar[Literal["nodes"]] = "nodes"
    parts: ClassVar[int] = 1

    def __init__(
        self,
        num_nodes: int,
        batch: Tensor | None,
        edges: Tensor | None,
        weight: Tensor | None = None,
    ) -> None:
        self.num_nodes = num_nodes
        self.isolated = self.one_way = self.repeated = 0
        if edges is not None:
            check_edges(edges, num_nodes)
            if edges.shape[1] <= MOST_SORTED:
                self.one_way, self.repeated = _odd(edges, num_nodes)
            alone = torch.ones(num_nodes, dtype=torch.bool, device=edges.device)
            alone[edges[0, edges[0] != edges[1]]] = False
            self.isolated = int(alone.sum())
        self.nodes, self.edges = _by_graph(num_nodes, batch, edges, weight)
        self.single = sum(nodes is not None and len(nodes) == 1 for nodes in self.nodes)
        self.isolated -= self.single if edges is not None else 0

    def split(self, x: Tensor) -> Iterator[tuple[Tokens, Edges | None]]:
        """Yields the nodes of one graph at a time, and its edges with their weights.

        Shapes: x (N, C), or (B, N, C) for B features of the same nodes -> (1, n, C), (2, e), (e,).
        """
        for features in x if x.dim() == 3 else x[None]:
            for nodes, edges in zip(self.nodes, self.edges):
                own = features if nodes is None else features[nodes]
                if len(own) > 1:
                    yield Tokens(own[None]), edges

    def sizes(self, x: Tensor) -> list[int]:
        """Returns the number of nodes of every graph."""
        sizes = [self.num_nodes if nodes is None else len(nodes) for nodes in self.nodes]
        return sizes * (x.shape[0] if x.dim() == 3 else 1)

    def left_out(self) -> list[str]:
        """Describes which nodes are left out of all measures."""
        graphs = f"{self.single} graph{'s' * (self.single > 1)} of one node"
        return [graphs] * bool(self.single)

    def check(self, name: str, x: Tensor) -> None:
        """Raises InputError if the layer has another number of nodes."""
        if x.shape[-2] != self.num_nodes:
            raise InputError(
                f"layers: {name} returns {x.shape[-2]} nodes for a graph of {self.num_nodes}; "
                "pooled graphs cannot be measured: choose the layers before, layers=…"
            )


def _odd(edges: Tensor, num_nodes: int) -> tuple[int, int]:
    """Returns the number of edges without their reverse, and of edges that are listed before."""
    listed, back = ((start * num_nodes + end).unique() for start, end in (edges, edges.flip(0)))
    one_way = len(listed) - int(torch.isin(listed, back, assume_unique=True).sum())
    return one_way, edges.shape[1] - len(listed)


def _by_graph(
    num_nodes: int, batch: Tensor | None, edges: Tensor | None, weight: Tensor | None
) -> tuple[list[Tensor | None], list[Edges | None]]:
    """Returns the nodes of every graph, and its edges between them, numbered from 0."""
    if batch is None:
        return [None], [None if edges is None else (edges, weight)]
    if batch.shape != (num_nodes,) or batch.is_floating_point():
        raise InputError(
            f"batch: expected the graph of each of {num_nodes} nodes, integers ({num_nodes},), got "
            f"{batch.dtype} {tuple(batch.shape)}; give batch= as torch-geometric's Batch has it"
        )
    _, batch, sizes = batch.unique(return_inverse=True, return_counts=True)
    order = batch.argsort(stable=True)
    nodes = list(order.split(sizes.tolist()))
    if edges is None:
        return nodes, [None] * len(nodes)
    if (batch[edges[0]] != batch[edges[1]]).any():
        raise InputError("edges: some join two graphs of batch; check batch= and edges=")
    starts = sizes.cumsum(0) - sizes
    place = torch.empty_like(order)
    place[order] = torch.arange(num_nodes, device=order.device) - starts[batch[order]]
    of_edge = batch[edges[0]]
    counts = torch.bincount(of_edge, minlength=len(sizes)).tolist()
    order = of_edge.argsort(stable=True)
    weights = [None] * len(counts) if weight is None else weight[order].split(counts)
    return nodes, list(zip(place[edges[:, order]].split(counts, dim=1), weights))


class Padding:
    """The padding masks in a running model.

    Args:
        model: the model.
        mask: given by the user for all layers, true for tokens, (B, N); None: those that modules
            get as ``attention_mask``, ``src_key_padding_mask`` and the like.
    """

    def __init__(self, model: nn.Module, mask: Tensor | None) -> None:
        self.model = model
        self.mask = None if mask is None else _kept("mask", mask)
        self._given: dict[nn.Module, dict[str, Any]] = {}  # the masks that each module gets
        self._shapes: dict[nn.Module, list[torch.Size]] = {}  # of all arguments of each module

    @contextmanager
    def followed(self, layers: dict[str, nn.Module]) -> Iterator[None]:
        """Context that notes the masks that layers and the modules around them get."""
        around = (m for name, layer in layers.items() for m in self._around(name, layer))
        with ExitStack() as stack:
            for module in dict.fromkeys(around):
                hook = module.register_forward_pre_hook(self._note, with_kwargs=True)
                stack.callback(hook.remove)
            yield

    def keep(self, name: str, layer: nn.Module, shape: tuple[int, ...]) -> Tensor | None:
        """Returns true for tokens of a layer that are not padding, (B, N); None without a mask.

        The innermost mask of the layer's shape counts.

        Args:
            name: of the layer.
            layer: the layer.
            shape: B and N of its tokens.

        Raises:
            InputError: the model gets a mask, and it is not one of booleans or of 0 and 1, (B, N).
        """
        if self.mask is not None:
            return self.mask
        unfit = None
        for module in reversed(self._around(name, layer)):
            inner = module is not self.model and not _is_model(module)
            masks = [*self._masks(name, module)]
            for which, mask in masks:
                if which == "patch_valid":  # without the tokens before the patches
                    mask = F.pad(mask, (max(0, shape[1] - mask.shape[1]), 0), value=1)
                if CACHE in self._given[module] and mask.dim() == 2:  # which has the first tokens
                    mask = mask[:, -shape[1] :]
                if mask.shape == shape and not (inner and _adds(which, mask)):
                    return _kept(which, mask)
                unfit = unfit if inner else (which, mask)
            if self._decides(module) and all(mask.dim() == 2 for _, mask in masks):
                break
        return None if unfit is None else _kept(*unfit)

    def inputs_of(self, name: str) -> list[torch.Size]:
        """Returns the shapes that the innermost model of timm or transformers around a layer gets.

        Its windows and other parts of a sample follow each other along the first axis.
        """
        around = reversed(parents_of(self.model, name).values())
        models = (module for module in around if _is_model(module) or _is_of_timm(module))
        return next((self._shapes[module] for module in models if module in self._shapes), [])

    def _around(self, name: str, layer: nn.Module) -> list[nn.Module]:
        return [*parents_of(self.model, name).values(), layer]

    def _note(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        given = named(module.forward, args, kwargs)
        inner = given.get("x")  # of timm, a dictionary of patches
        given = {**inner, **given} if isinstance(inner, Mapping) else given
        self._shapes[module] = shapes_of(given.values())
        self._given[module] = {
            name: given[name] for name in (*NAMES, CACHE) if given.get(name) is not None
        }

    def _masks(self, name: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """Yields the masks that a module gets for a layer, and their names."""
        known = (*signature(module.forward).parameters, *self._given.get(module, {}))
        for of_encoder, of_decoder in PARAMETERS.items():
            decodes = "decoder" in name.split(".") or of_encoder not in known
            which = of_decoder if of_decoder in known and decodes else of_encoder
            if isinstance(mask := self._given.get(module, {}).get(which), Tensor):
                yield which, mask.flatten(1) if which in OF_PATCHES else mask

    def _decides(self, module: nn.Module) -> bool:
        """Whether masks of the modules around a module do not apply to its tokens."""
        if isinstance(module, nn.TransformerDecoder | nn.TransformerDecoderLayer):
            return True
        return module in self._given and _is_model(module)


def _is_model(module: nn.Module) -> bool:
    return any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__)


def _is_of_timm(module: nn.Module) -> bool:
    of_timm = any(kind.__module__.startswith("timm.") for kind in type(module).__mro__)
    return of_timm and hasattr(module, "forward_features")


def _adds(which: str, mask: Tensor) -> bool:
    """Whether a mask is one that blocks of transformers add to their scores."""
    return mask.is_floating_point() and which.endswith("attention_mask")


def _kept(which: str, mask: Tensor) -> Tensor:
    """Returns true for tokens that are not padding."""
    if which.endswith("key_padding_mask"):
        return ~mask if mask.dtype == torch.bool else mask == 0
    if mask.dim() != 2 or mask.is_floating_point() and not ((mask == 0) | (mask == 1)).all():
        raise InputError(
            f"{which}: expected booleans or 0 and 1, (B, N), true for every token that counts, got "
            f"{mask.dtype} {tuple(mask.shape)}; give mask= in this form"
        )
    return mask != 0


@dataclass(frozen=True)
class Options:
    """Properties of the inputs given by the user; None: taken from the model and its inputs.

    Args:
        edges: edges of a graph, (2, E).
        mask: true for tokens, false for padding, (B, N).
        batch: index of the graph of every node, (N,).
        prefix: number of leading tokens to leave out, such as 1 for a class token.

    Raises:
        InputError: an option is not of its type.
    """

    edges: Tensor | None = None
    mask: Tensor | None = None
    batch: Tensor | None = None
    prefix: int | None = None

    def __post_init__(self) -> None:
        for option in ("edges", "mask", "batch"):
            if not isinstance(value := getattr(self, option), Tensor | None):
                raise InputError(f"{option}: expected a tensor, got {type(value).__name__}")
        if isinstance(self.prefix, bool) or not isinstance(self.prefix, int | None):
            raise InputError(f"prefix: expected a number of tokens, got {self.prefix!r}")


class Plan:
    """How the tokens of one call are split into samples.

    Attributes:
        size: B of the inputs; None: unknown.
        graph: whether the tokens are nodes of graphs.
        weight: of the edges, (E,); None: 1.

    Args:
        model: the model.
        call: the arguments of the call.
        options: given by the user.

    Raises:
        InputError: the batch is empty, or an option does not belong to a graph.
    """

    def __init__(self, model: nn.Module, call: Call, options: Options) -> None:
        self.model, self.call, self.options = model, call, options
        edges = _or(options.edges, call.tensor("edge_index"))
        weight = call.tensor("edge_weight") if options.edges is None else None
        (self.edges, self.weight), self.shapes = _pairs(edges, weight), call.shapes()
        self.batch = options.batch
        if self.batch is None and (self.edges is not None or self._has_graphs()):
            self.batch = call.tensor("batch")
        self.graph = self.edges is not None or self.batch is not None
        if self.graph and (options.mask is not None or options.prefix):
            option = "prefix" if options.mask is None else "mask"
            raise InputError(f"{option}: nodes of a graph are all measured; leave it out")
        self.size = next((shape[0] for shape in self.shapes), None)
        if self.size == 0:
            raise InputError("inputs: the batch is empty; give samples")
        self.padding = Padding(model, options.mask)
        self._graphs: Graphs | None = None

    def samples(
        self, name: str, layer: nn.Module, x: Tensor, layout: str | None
    ) -> Sequences | Graphs:
        """Returns how the tokens of a layer are split.

        Args:
            layout: of the layer's output before it became tokens.

        Shapes: x (B, N, C) or (N, C).
        """
        if self.graph or x.dim() == 2:
            if self._graphs is None:
                self._require_nodes(name, x)
                given = (_on(x.device, y) for y in (self.batch, self.edges, self.weight))
                self._graphs = Graphs(x.shape[-2], *given)
            found: Sequences | Graphs = self._graphs
        else:
            keep = self.padding.keep(name, layer, x.shape[:2])
            found = self._sequences(name, x, layout, _on(x.device, keep))
        found.check(name, x)
        return found

    def inputs(self, B: int, layout: str | None) -> int:
        """Returns the number of inputs, for a layer with B samples; B if it is not certain."""
        known = any(B in shape[:2] for shape in self.shapes)
        if self.graph or layout == "NBC" or not self.shapes:
            return B
        return max(B * known, *(shape[0] for shape in self.shapes))  # images and their texts differ

    def layout(self, name: str, output: Any) -> str | None:
        """Returns BHWC if a layer returns a feature map in a timm model that says so; else None."""
        around = parents_of(self.model, name).values()
        last = any(getattr(module, "output_fmt", None) == "NHWC" for module in around)
        return "BHWC" if last and isinstance(output, Tensor) and output.dim() == 4 else None

    def _sequences(
        self, name: str, x: Tensor, layout: str | None, keep: Tensor | None
    ) -> Sequences:
        (B, N, _), prefix = x.shape, self.options.prefix
        shapes = self.padding.inputs_of(name)
        size = max((shape[0] for shape in shapes), default=B)
        parts = B // size if size and B % size == 0 else 1
        if prefix is not None:
            if not 0 <= prefix < N:
                raise InputError(
                    f"prefix: expected 0 to {N - 1}, below the tokens of {name}, got {prefix}"
                )
            return Sequences(prefix, 0, parts, keep)
        frames = {shape[1] for shape in shapes if len(shape) == 5}  # of a video; each has a CLS
        if layout in ("BCHW", "BHWC") or parts > 1 and parts not in frames:
            return Sequences(0, 0, parts, keep)
        return Sequences(prefix_of(self.model, name), suffix_of(self.model, name), parts, keep)

    def _has_graphs(self) -> bool:
        """Whether the model gets the graph of every node, without edges."""
        batch = self.call.named.get("batch", self.call.data.get("batch"))
        if not isinstance(batch, Tensor) or batch.dim() != 1 or batch.is_floating_point():
            return False
        nodes = next(iter(self.shapes), (len(batch), 0))
        return tuple(nodes[:1]) == (len(batch),) and len(nodes) == 2

    def _require_nodes(self, name: str, x: Tensor) -> None:
        """Checks that a layer returns the nodes that the model's own inputs name."""
        nodes, needed = x.shape[-2], 0
        if self.batch is not None and self.options.batch is None:
            needed = len(self.batch)
        elif self.edges is not None and self.edges.numel() and self.options.edges is None:
            needed = max(nodes, int(self.edges.max()) + 1)
        if needed not in (0, nodes):
            raise InputError(
                f"layers: {name} returns {tuple(x.shape)}, {nodes} nodes, but the inputs have "
                f"{needed} or more; choose layers that return all nodes, layers=…"
            )


def _or(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return second if first is None else first


def _pairs(edges: Tensor | None, weight: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Returns edges (2, E) and weights (E,), also those of a sparse matrix with targets as rows."""
    if edges is None or edges.layout == torch.strided:
        fits = edges is not None and weight is not None and weight.numel() == edges.shape[1]
        return edges, weight.flatten() if fits else None  # type: ignore[union-attr]
    matrix = edges.to_sparse_coo().coalesce()
    return matrix.indices().flip(0), matrix.values()


def _on(device: torch.device, x: Tensor | None) -> Tensor | None:
    return None if x is None else x.to(device)
