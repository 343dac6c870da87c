"""Reads from the inputs of a call how the tokens of every layer are split into samples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.prefix import parents_of, prefix_of, suffix_of
from oversmoothing.checks import check_tensor
from oversmoothing.diagnosis.calls import Call
from oversmoothing.diagnosis.hetero import nodes_of, relations
from oversmoothing.diagnosis.padding import Padding
from oversmoothing.diagnosis.samples import BOUNDS, Graphs, Packed, Sequences, ids_of
from oversmoothing.errors import InputError

UNWEIGHTED = (
    "Edges count without weights: edge_weight has no number for each edge that is measured; "
    "edges= as a sparse matrix (N, N) has weights."
)


@dataclass(frozen=True)
class Options:
    """Properties of the inputs given by the user; None: taken from the model and its inputs.

    Args:
        edges: edges of a graph, (2, E).
        mask: true for tokens, false for padding, (B, N).
        batch: index of the graph of every node, (N,); with nodes of several types by type.
        prefix: number of leading tokens to leave out, such as 1 for a class token.
        labels: classes of the tokens, (B, N), or of the nodes, (N,); negative: none. With nodes of
            several types, a dictionary of (N,) by type.
        segments: sequences that are packed into the rows, see ``ids_of``.

    Raises:
        InputError: an option is not of its type.
    """

    edges: Tensor | None = None
    mask: Tensor | None = None
    batch: Any = None
    prefix: int | None = None
    labels: Any = None
    segments: Tensor | None = None

    def __post_init__(self) -> None:
        of_kinds, batches = (
            [*x.values()] if isinstance(x, Mapping) else [x] for x in (self.labels, self.batch)
        )
        tensors = {name: getattr(self, name) for name in ("edges", "mask", "segments")}
        of_nodes = [*(("batch", x) for x in batches), *(("labels", x) for x in of_kinds)]
        for option, value in (*tensors.items(), *of_nodes):
            if value is not None and not (option == "edges" and _is_matrix(value)):
                check_tensor(option, value)
            if value is not None and not value.dim():
                raise InputError(f"{option}: expected one entry for each token, got a number")
        if isinstance(self.prefix, bool) or not isinstance(self.prefix, int | None):
            raise InputError(f"prefix: expected a number of tokens, got {self.prefix!r}")
        for x in of_kinds:
            if x is not None and x.is_floating_point():
                raise InputError(f"labels: expected integers, got {x.dtype}")


class Plan:
    """How the tokens of one call are split into samples.

    Attributes:
        size: B of the inputs; None: unknown.
        graph: whether the tokens are nodes of graphs.
        relations: edges by type, of a graph with nodes of several types; else empty.
        flat: whether tokens (N, C) are one row of a sequence, not nodes.
        weight: of the edges, (E,); None: 1.
        notes: for the report, on weights that are not used.

    Args:
        model: the model.
        call: the arguments of the call.
        options: given by the user.

    Raises:
        InputError: the batch is empty, or an option does not belong to a graph.
    """

    def __init__(self, model: nn.Module, call: Call, options: Options) -> None:
        self.model, self.call, self.options = model, call, options
        edges, own, weight = options.edges, call.tensor("edge_index"), call.tensor("edge_weight")
        if edges is None:
            edges = call.tensor("adj_t") if own is None else own  # of ToSparseTensor
        fits = own is None or edges is own or _equal(edges, own)
        self.edges, self.weight = _pairs(edges, weight if fits else None)
        self.shapes = call.shapes()
        unused = weight is not None and self.edges is not None and self.weight is None
        self.notes = [UNWEIGHTED] * unused
        self.batch = options.batch
        if self.batch is None and (self.edges is not None or self._has_graphs()):
            self.batch = call.tensor("batch")
        self.relations = relations(call)
        self.graph = self.edges is not None or self.batch is not None or bool(self.relations)
        self._require_fitting(self.graph)
        packed = options.segments, *map(call.tensor, BOUNDS)
        self.flat = not self.graph and any(value is not None for value in packed)
        self.size = next((shape[0] for shape in self.shapes), None)
        if self.size == 0:
            raise InputError("inputs: the batch is empty; give samples")
        self.padding = Padding(model, options.mask, options.segments is not None)
        self._graphs: dict[str, Graphs] = {}

    def samples(
        self, name: str, layer: nn.Module, x: Tensor, layout: str | None, kind: str = ""
    ) -> Sequences | Graphs:
        """Returns how the tokens of a layer are split.

        Args:
            layout: of the layer's output before it became tokens.
            kind: type of the nodes; empty: there is one.

        Shapes: x (B, N, C) or (N, C).
        """
        if self.graph or x.dim() == 2:
            if kind not in self._graphs:
                self._graphs[kind] = self._graph(name, x, kind)
            found: Sequences | Graphs = self._graphs[kind]
        else:
            B, N = x.shape[:2]
            ids, segments = ids_of(self.options.segments, self.call, B, N), self.options.segments
            if ids is None and segments is not None:
                raise InputError(
                    f"segments: expected the sequence of every token, ({B}, {N}) or ({N},), or "
                    f"ascending bounds from 0 to {B * N}, and no sequence in two rows, got "
                    f"{segments.dtype} {tuple(segments.shape)}"
                )
            keep = self._keep(name, layer, B, N)
            found = self._packed(ids, keep, B, N) or self._sequences(name, x, layout, keep)
        found.check(name, x)
        return found

    def tokens(self, x: Tensor) -> Tensor:
        """Returns tokens (N, C) that are no nodes as one row. Shapes: -> (B, N, C) or (N, C)."""
        return x[None] if self.flat and x.dim() == 2 else x

    def rows(self, name: str, layer: nn.Module, B: int, N: int) -> list[tuple[int, Any]]:
        """Returns the row along B of every sample, and the places of its tokens; None: all.

        Empty: the mask or the segments belong to other tokens than these.
        """
        keep = self._keep(name, layer, B, N)
        ids = ids_of(self.options.segments, self.call, B, N)
        if keep is not None and keep.shape != (B, N):
            return []
        if packed := self._packed(ids, keep, B, N):
            return packed.rows()
        if self.options.segments is not None:
            return []
        return [(b, None if keep is None else keep[b].nonzero()[:, 0]) for b in range(B)]

    def _keep(self, name: str, layer: nn.Module, B: int, N: int) -> Tensor | None:
        """Returns true for tokens that are not padding, also if all rows follow each other."""
        keep = self.padding.keep(name, layer, (B, N))
        return keep.view(B, N) if keep is not None and keep.numel() == B * N else keep

    def _packed(self, ids: Tensor | None, keep: Tensor | None, B: int, N: int) -> Packed | None:
        """Returns the sequences that are packed into rows; None if no row has several."""
        if ids is None or keep is not None and keep.shape != (B, N):
            return None
        padded = bool((ids < 0).any())  # after the last bound
        ids = ids if keep is None else ids.masked_fill(~keep.cpu(), -1)
        several = padded or any(len(row[row >= 0].unique()) > 1 for row in ids)
        if not several and self.options.segments is None:
            return None
        labels = self.options.labels
        if isinstance(labels, Tensor) and labels.shape == (N,):
            labels = labels.expand(B, N)
        return Packed(self.options.prefix or 0, keep=ids >= 0, labels=labels, ids=ids)

    def _graph(self, name: str, x: Tensor, kind: str) -> Graphs:
        labels = self.options.labels
        if kind:
            labels = labels.get(kind) if isinstance(labels, Mapping) else None
            known = nodes_of(kind, self.relations, self.call, self.options.batch)
            return Graphs(len(x), *(_on(x.device, y) for y in (*known, labels)))
        self._require_nodes(name, x)
        if not self.graph:
            self._require_fitting(nodes=True)
        given = (self.batch, self.edges, self.weight, labels)
        return Graphs(x.shape[-2], *(_on(x.device, y) for y in given))

    def _require_fitting(self, nodes: bool) -> None:
        """Checks that the options belong to the kind of tokens that there are."""
        given = {name for name, value in vars(self.options).items() if value is not None}
        given -= set() if self.options.prefix else {"prefix"}
        for option in ("mask", "segments", "prefix"):
            if nodes and option in given:
                raise InputError(f"{option}: nodes of a graph are all measured; leave it out")
        if self.relations and "edges" in given:
            raise InputError(
                "edges: nodes of several types have their own, which diagnose reads from the "
                "model's arguments; leave it out"
            )
        batch = self.options.batch
        if self.edges is not None and isinstance(self.call.named.get("batch"), Mapping):
            batch = self.call.named["batch"]  # of a graph, else it could be inputs by name
        for option, value in (("batch", batch), ("labels", self.options.labels)):
            if value is None or isinstance(value, Mapping) == bool(self.relations):
                continue
            wanted = "a tensor, since all nodes or tokens are of one type"
            if self.relations:
                wanted = f"a dictionary by type of node, such as {{'paper': {option}}}"
            raise InputError(f"{option}: expected {wanted}; got a {type(value).__name__}")

    def inputs(self, B: int, layout: str | None) -> int:
        """Returns the number of inputs, for a layer with B samples; B if it is not certain."""
        known = any(B in shape[:2] for shape in self.shapes)
        if self.graph or layout == "NBC" or not self.shapes:
            return B
        return max(B * known, *(shape[0] for shape in self.shapes))  # images and their texts differ

    def added(self, x: Tensor, unit: str) -> list[str]:
        """Says if a layer has more tokens than every input. Shapes: x (B, N, C)."""
        images = any(len(shape) > 3 for shape in self.shapes)
        known = self.options.mask is not None or self.options.segments is not None
        if unit != "tokens" or x.dim() != 3 or images or known or not self.shapes:
            return []
        longest = max(shape[1] for shape in self.shapes)
        return [
            f"The layers have {x.shape[1]} tokens for {longest} of the inputs: tokens that the "
            "model adds (padding of windows, prompts) count; mask= leaves them out."
        ] * (x.shape[1] > longest)

    def layout(self, name: str, output: Any) -> str | None:
        """Returns BHWC for a feature map inside a timm model of this format; else None."""
        around = parents_of(self.model, name).values()
        last = any(getattr(module, "output_fmt", None) == "NHWC" for module in around)
        return "BHWC" if last and isinstance(output, Tensor) and output.dim() == 4 else None

    def require_one_stream(self, name: str, layer: nn.Module, x: Tensor) -> None:
        """Checks that an output of four axes is no bundle of sequences (hyper-connections, AltUp).

        Raises:
            InputError: it is (B, N, S, C) or (S, B, N, C), for inputs (B, N) or (B, N, C).
        """
        inputs = {s[:2] for s in self.shapes if len(s) == 2 or s[2:] == x.shape[3:]}
        if x.dim() == 4 and {x.shape[:2], x.shape[1:3]} & inputs:
            sizes = {n: sum(p.numel() for p in m.parameters()) for n, m in layer.named_children()}
            inner = f", such as {name}.{max(sizes, key=sizes.__getitem__)}" if sizes else ""
            raise InputError(
                f"layers: {name} returns several streams of tokens, {tuple(x.shape)}; choose "
                f"layers that return one{inner}"
            )

    def _sequences(
        self, name: str, x: Tensor, layout: str | None, keep: Tensor | None
    ) -> Sequences:
        (B, N, _), prefix = x.shape, self.options.prefix
        keep, labels = _on(x.device, keep), _on(x.device, self.options.labels)
        shapes = self.padding.inputs_of(name)
        size = max((shape[0] for shape in shapes), default=B)
        parts = B // size if size and B % size == 0 else 1
        if prefix is not None:
            if not 0 <= prefix < N:
                raise InputError(
                    f"prefix: expected 0 to {N - 1}, below the tokens of {name}, got {prefix}"
                )
            return Sequences(prefix, 0, parts, keep, labels)
        frames = {shape[1] for shape in shapes if len(shape) == 5}  # of a video; each has a CLS
        if layout in ("BCHW", "BHWC") or parts > 1 and parts not in frames:
            return Sequences(0, 0, parts, keep, labels)
        around = prefix_of(self.model, name), suffix_of(self.model, name)
        return Sequences(*around, parts, keep, labels)

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


def _is_matrix(edges: Any) -> bool:
    return isinstance(edges, Tensor) and edges.layout != torch.strided and edges.dim() == 2


def _equal(edges: Any, own: Tensor) -> bool:
    """Whether edges given by the user are those that the model gets."""
    if _is_matrix(edges) or edges.layout != own.layout:
        return False
    return torch.equal(edges.to(own), own)


def _pairs(edges: Tensor | None, weight: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Returns edges (2, E) and weights (E,), also those of a sparse matrix with targets as rows."""
    if edges is None or edges.layout == torch.strided:
        fits = edges is not None and weight is not None and weight.numel() == edges.shape[1]
        return edges, weight.flatten() if fits else None  # type: ignore[union-attr]
    matrix = edges.to_sparse_coo().coalesce()
    return matrix.indices().flip(0), matrix.values()


def _on(device: torch.device, x: Tensor | None) -> Tensor | None:
    return None if x is None else x.to(device)
