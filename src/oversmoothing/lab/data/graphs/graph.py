"""A graph with node features, labels and masks."""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from oversmoothing.checks import check_edges
from oversmoothing.errors import InputError

PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph with masks; it is shared, so its tensors must not be changed.

    Args:
        name: of the data set.
        x: features, CSR sparse or dense, float32 (N, F).
        y: labels (N,), int64; -1 for a node without label, which is in no mask.
        edges: rows and columns of the distinct entries of A, sorted, (2, E); an undirected edge has
            both directions. Self-loops of the raw data are kept; backbones add I themselves.
        num_classes: labels are 0 … num_classes - 1.
        train: boolean (N,), or (splits, N): several ways to divide the nodes.
        val: like ``train``.
        test: like ``train``.
        checksum: short hash of the raw files or of the generator's arguments.
        weights: of the edges, float32 (E,); None if all are 1.
    """

    name: str
    x: Tensor
    y: Tensor
    edges: Tensor
    num_classes: int
    train: Tensor
    val: Tensor
    test: Tensor
    checksum: str
    weights: Tensor | None = None

    def masks(self, seeds: Sequence[int]) -> dict[str, list[Tensor]]:
        """Returns the training, validation and test nodes of the network of each seed.

        Args:
            seeds: seed s uses split s modulo the number of splits.

        Returns:
            ``train``, ``val`` and ``test``: for each seed the indices of the nodes.
        """
        parts = {"train": self.train, "val": self.val, "test": self.test}
        splits = {name: mask.view(-1, self.num_nodes) for name, mask in parts.items()}
        return {
            name: [mask[seed % len(mask)].nonzero()[:, 0] for seed in seeds]
            for name, mask in splits.items()
        }

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.y.shape[0]

    def to(self, device: torch.device | str) -> "Graph":
        """Returns the graph with its tensors on a device."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        tensors = {key: value.to(device) for key, value in fields.items() if torch.is_tensor(value)}
        return dataclasses.replace(self, **tensors)


def check_graph(graph: Graph, without_training: Literal["refuse", "warn"] = "refuse") -> Graph:
    """Returns the graph if a network can be trained and tested on it.

    Warns of isolated nodes: they keep only their own features, through the backbone's self-loop.

    Args:
        graph: to check.
        without_training: what to do about a class without training node.

    Raises:
        InputError: there are fewer than 2 nodes, a tensor has another type or shape, a label or an
            edge is out of range, a node in a mask has no label, a class has no training node, there
            is no validation or test node, two masks have a node in common, or features are not
            finite.
    """
    name, N = graph.name, graph.num_nodes
    if N < 2:
        raise InputError(f"data {name}: expected a graph of 2 nodes or more, got {N}")
    _check_tensors(graph)
    for part in PARTS:
        _check_mask(graph, part)
    for one, other in combinations(PARTS, 2):
        _check_disjoint(graph, one, other)
    for train in graph.train.view(-1, N):
        per_class = torch.bincount(graph.y[train], minlength=graph.num_classes)
        if (per_class == 0).any():
            line = f"data {name}: class {int(per_class.argmin())} has no training node"
            if without_training == "refuse":
                options = "data.protocol, data.split or data.train_per_class"
                raise InputError(f"{line}; change {options}")
            warnings.warn(line, stacklevel=2)
            break
    values = graph.x.values() if graph.x.is_sparse_csr else graph.x
    if not values.isfinite().all():
        raise InputError(f"data {name}: features hold nan or inf; fix the raw data")
    if isolated := count_isolated(graph.edges, N):
        nodes = "1 node has" if isolated == 1 else f"{isolated} nodes have"
        warnings.warn(f"data {name}: {nodes} no neighbour", stacklevel=2)
    return graph


def _check_tensors(graph: Graph) -> None:
    """Checks the types and shapes of features, labels, masks and edges, and their ranges."""
    name, N, y = graph.name, graph.num_nodes, graph.y
    if graph.x.layout not in (torch.strided, torch.sparse_csr):
        raise InputError(
            f"data {name}: expected x dense or CSR, got {graph.x.layout}; give x.to_sparse_csr()"
        )
    if y.dtype != torch.int64 or y.dim() != 1:
        raise InputError(
            f"data {name}: expected y of int64, (N,), got {y.dtype} {tuple(y.shape)}; give y.long()"
        )
    if not -1 <= y.min() <= y.max() < graph.num_classes:
        raise InputError(
            f"data {name}: expected labels from 0 to num_classes − 1 = {graph.num_classes - 1}, or "
            f"-1 for none, got {int(y.min())} to {int(y.max())}; number them from 0"
        )
    if graph.x.dim() != 2 or graph.x.shape[0] != N:
        raise InputError(f"data {name}: expected x of ({N}, F), got {tuple(graph.x.shape)}")
    for part in PARTS:
        mask = getattr(graph, part)
        if mask.dtype != torch.bool or mask.dim() not in (1, 2) or mask.shape[-1] != N:
            raise InputError(
                f"data {name}: expected a boolean mask {part} of ({N},), or (splits, {N}), got "
                f"{mask.dtype} {tuple(mask.shape)}; from indices: torch.zeros({N}, "
                "dtype=torch.bool).index_fill(0, indices, True)"
            )
    try:
        check_edges(graph.edges, N)
    except InputError as error:
        raise InputError(f"data {name}: {error}") from error


def _check_mask(graph: Graph, part: str) -> None:
    name, mask = graph.name, getattr(graph, part).view(-1, graph.num_nodes)
    if not mask.any(dim=1).all():
        raise InputError(
            f"data {name}: no {part} node; change data.protocol, data.split or data.num_nodes"
        )
    if unlabelled := int((mask.any(dim=0) & (graph.y < 0)).sum()):
        raise InputError(
            f"data {name}: {unlabelled} {part} nodes have no label; draw other nodes with "
            "data.split_sizes=[0.6,0.2,0.2] or fix the raw data"
        )


def _check_disjoint(graph: Graph, one: str, other: str) -> None:
    """Refuses a node that is in both masks of one split."""
    pair = [getattr(graph, part).view(-1, graph.num_nodes) for part in (one, other)]
    for split in range(math.lcm(*map(len, pair))):  # seeds pair the splits of both in this way
        first, second = (mask[split % len(mask)] for mask in pair)
        if common := int((first & second).sum()):
            nodes = "1 node is" if common == 1 else f"{common} nodes are"
            raise InputError(
                f"data {graph.name}: {nodes} in both the {one} and the {other} mask; expected "
                f"disjoint masks; take {other} & ~{one}, or with data=pyg draw others with "
                "data.split_sizes=[0.6,0.2,0.2]"
            )


def count_isolated(edges: Tensor, num_nodes: int) -> int:
    """Counts the nodes that no other node has an edge to. Shapes: edges (2, E)."""
    rows, columns = edges
    return int((rows[rows != columns].bincount(minlength=num_nodes) == 0).sum())


def symmetrised(edges: Tensor, num_nodes: int) -> Tensor:
    """Adds the reverse of every edge, removes duplicates and sorts. Shapes: (2, E) -> (2, E')."""
    rows, columns = torch.cat([edges, edges.flip(0)], dim=1)
    keys = (rows * num_nodes + columns).unique()
    return torch.stack([keys // num_nodes, keys % num_nodes])


def to_csr(x: Tensor) -> Tensor:
    """Converts a dense matrix to CSR. Shapes: (N, F) -> (N, F)."""
    with warnings.catch_warnings():  # torch warns that CSR is in beta
        warnings.simplefilter("ignore", UserWarning)
        return x.to_sparse_csr()


def row_normalised(x: Tensor) -> Tensor:
    """Divides each row by its sum + 1e-6, as in ContraNorm's code. Shapes: CSR (N, F) -> (N, F)."""
    counts = x.crow_indices().diff()
    rows = torch.repeat_interleave(counts)
    sums = x.values().new_zeros(x.shape[0]).index_add_(0, rows, x.values())
    values = x.values() / (sums + 1e-6)[rows]
    pattern = (x.crow_indices(), x.col_indices())
    return torch.sparse_csr_tensor(*pattern, values, x.shape, check_invariants=True)
