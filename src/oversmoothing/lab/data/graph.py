"""A graph with node features, labels and masks: its checks, and how it is built from tensors."""

import dataclasses
import functools
import hashlib
import inspect
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, ParamSpec

import torch
from torch import Tensor

from oversmoothing.checks import check_edges
from oversmoothing.errors import InputError

PARTS = ("train", "val", "test")
Metric = Literal["accuracy", "roc_auc"]


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph with masks; it is shared, so its tensors must not be changed.

    Args:
        name: of the data set.
        x: features, CSR sparse or dense, float32 (N, F).
        y: labels (N,), int64; -1 for a node without label, which is in no mask.
        edges: rows and columns of the distinct entries of A, (2, E); an undirected edge has
            both directions. Self-loops of the raw data are kept; backbones add I themselves.
        num_classes: labels are 0 … num_classes - 1.
        train: boolean (N,), or (splits, N): several ways to divide the nodes.
        val: like ``train``.
        test: like ``train``.
        checksum: short hash of the raw files or of the generator's arguments.
        weights: of the edges, float32 (E,); None if all are 1.
        metric: by which networks are selected and compared: ``accuracy``, or for two classes
            ``roc_auc``, the area under the ROC curve.
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
    metric: Metric = "accuracy"

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
            is no validation or test node, two masks have a node in common, a mask has only one
            class and the metric is ROC AUC, or features are not finite.
    """
    name, N = graph.name, graph.num_nodes
    if N < 2:
        raise InputError(f"data {name}: expected a graph of 2 nodes or more, got {N}")
    _check_tensors(graph)
    for part in PARTS:
        _check_mask(graph, part)
    for one, other in combinations(PARTS, 2):
        _check_disjoint(graph, one, other)
    _check_both_classes(graph)
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
    _check_edges(name, graph.edges, N)


def _check_edges(name: str, edges: Tensor, num_nodes: int) -> None:
    try:
        check_edges(edges, num_nodes)
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


def _check_both_classes(graph: Graph) -> None:
    """Refuses masks whose ROC AUC is not defined, if the graph is scored by it."""
    for part in PARTS if graph.metric == "roc_auc" else ():
        for own in getattr(graph, part).view(-1, graph.num_nodes):
            if (found := len(graph.y[own].unique())) != 2:
                raise InputError(
                    f"data {graph.name}: metric: roc_auc needs nodes of two classes in every mask, "
                    f"got {found} in {part}; draw other nodes, or set metric='accuracy'"
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


def to_csr(x: Tensor) -> Tensor:
    """Converts a dense matrix to CSR. Shapes: (N, F) -> (N, F)."""
    with warnings.catch_warnings():  # torch warns that CSR is in beta
        warnings.simplefilter("ignore", UserWarning)
        return x.to_sparse_csr()


DENSITY = 0.1  # features with a smaller fraction of non-zero entries are stored as CSR
Masks = tuple[Tensor, Tensor, Tensor]


def build(
    name: str,
    x: Tensor | None,
    y: Tensor | None,
    edge_index: Tensor | None,
    masks: Masks,
    num_nodes: int,
    weights: Tensor | None = None,
    undirected: bool = True,
    row_normalize: bool = False,
    checksum: str | None = None,
    metric: Metric = "accuracy",
) -> Graph:
    """Converts and checks the tensors of a data set.

    Args:
        name: of the data set, for messages.
        x: features (N, F) of any real type, dense or sparse.
        y: labels (N,) or (N, 1); -1 or nan for nodes without label, which must be outside the
            masks.
        edge_index: source and target of every edge, (2, E), in any order. An edge or self-loop
            that is listed several times counts once, with its largest weight.
        masks: of training, validation and test nodes, boolean (N,) or (splits, N).
        num_nodes: N.
        weights: of the edges, (E,) or (E, 1).
        undirected: add the other direction of every edge; of two weights the larger one counts.
        row_normalize: divide each feature row by its sum + 1e-6.
        checksum: of the raw files; None: that of features, labels, edges and weights.
        metric: see ``Graph``.

    Raises:
        InputError: tensors have wrong shapes, types or values.
    """
    y = labels(name, y, num_nodes)
    edges, weights = entries(name, edge_index, weights, num_nodes, undirected)
    x = real(name, x, num_nodes)
    x = normalised(name, x) if row_normalize else x
    classes = int(y.max()) + 1
    checksum = checksum or _checksum(x, y, edges, weights)
    graph = Graph(name, x, y, edges, classes, *masks, checksum, weights, metric)
    return check_graph(graph, "warn")


def labels(name: str, y: Tensor | None, num_nodes: int) -> Tensor:
    """Checks and converts labels: int64 (N,), one class per node; -1: without label."""
    if y is None:
        raise InputError(f"data {name}: it has no labels; choose a data set of node classification")
    if y.dim() == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dim() == 2:
        raise InputError(
            f"data {name}: {y.shape[1]} labels per node; expected one class per node, so choose a "
            "data set that is not multi-label"
        )
    if y.shape != (num_nodes,):
        raise InputError(
            f"data {name}: labels of shape {tuple(y.shape)} for {num_nodes} nodes; choose a data "
            "set that labels nodes"
        )
    if y.is_floating_point():
        y = y.nan_to_num(nan=-1.0)
        if (y != y.round()).any():
            raise InputError(
                f"data {name}: labels are not whole numbers but {y[y != y.round()][0]:g}, …; "
                "choose a data set of classification, not of regression"
            )
    y = y.long().clamp(min=-1)
    if (known := y[y >= 0].unique().numel()) < 2:
        raise InputError(f"data {name}: expected two classes or more, got {known}")
    return y


def entries(
    name: str,
    edge_index: Tensor | None,
    weights: Tensor | None,
    num_nodes: int,
    undirected: bool,
) -> tuple[Tensor, Tensor | None]:
    """Returns rows and columns of the distinct entries of A, sorted (2, E'), and weights (E',).

    Row i receives from column j: an edge from j to i.
    """
    if edge_index is None or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError(f"data {name}: it has no edges (2, E); choose a data set that is a graph")
    _check_edges(name, edge_index, num_nodes)
    pairs = edge_index.long().flip(0)
    weights = None if weights is None else _weights(name, weights, pairs.shape[1])
    if undirected:
        pairs = torch.cat([pairs, pairs.flip(0)], dim=1)
        weights = None if weights is None else weights.repeat(2)
    keys, places = (pairs[0] * num_nodes + pairs[1]).unique(return_inverse=True)
    if weights is not None:
        once = weights.new_zeros(keys.shape[0])
        weights = once.scatter_reduce_(0, places, weights, "amax", include_self=False)
    return torch.stack([keys // num_nodes, keys % num_nodes]), weights


def _weights(name: str, weights: Tensor, num_edges: int) -> Tensor:
    if weights.numel() != num_edges:
        raise InputError(
            f"data {name}: {weights.numel()} edge weights for {num_edges} edges; fix the raw data"
        )
    weights = weights.reshape(-1).float()
    if bad := int((~(weights >= 0) | weights.isinf()).sum()):
        raise InputError(
            f"data {name}: {bad} edge weights are negative, nan or inf; a graph convolution needs "
            "weights of 0 or more, so leave them out with data.weights=false or fix the raw data"
        )
    return weights


def real(name: str, x: Tensor | None, num_nodes: int) -> Tensor:
    """Checks and converts features: float32 (N, F), CSR if they are sparse enough, else dense."""
    if x is None or x.numel() == 0:
        raise InputError(f"data {name}: it has no node features; choose another data set")
    if x.dim() != 2 or x.shape[0] != num_nodes:
        raise InputError(
            f"data {name}: expected features ({num_nodes}, F), got {tuple(x.shape)}; fix the raw "
            "data"
        )
    if x.layout == torch.strided:
        count = int(x.count_nonzero())
    else:
        x = x.to_sparse_coo().coalesce()
        count = x.values().numel()
    x = x.to(torch.float32)
    return to_csr(x) if count < DENSITY * x.shape[0] * x.shape[1] else x.to_dense()


def normalised(name: str, x: Tensor) -> Tensor:
    """Divides each row by its sum + 1e-6, as in ContraNorm's code."""
    if ((x.values() if x.is_sparse_csr else x) < 0).any():
        raise InputError(
            f"data {name}: features below 0 cannot be divided by their sum; set "
            "data.row_normalize=false"
        )
    if not x.is_sparse_csr:
        return x / (x.sum(dim=1, keepdim=True) + 1e-6)
    rows = torch.repeat_interleave(x.crow_indices().diff())
    sums = x.values().new_zeros(x.shape[0]).index_add_(0, rows, x.values())
    values = x.values() / (sums + 1e-6)[rows]
    pattern = (x.crow_indices(), x.col_indices())
    return torch.sparse_csr_tensor(*pattern, values, x.shape, check_invariants=True)


def _checksum(*tensors: Tensor | None) -> str:
    """Hashes tensors to twelve hex digits."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None and tensor.is_sparse_csr:
            parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
        else:
            parts = [] if tensor is None else [tensor]
        for part in parts:
            digest.update(f"{part.dtype} {tuple(part.shape)} ".encode())
            digest.update(part.contiguous().numpy())
    return digest.hexdigest()[:12]


P = ParamSpec("P")
KEPT = 4  # graphs


def kept(make: Callable[P, Graph]) -> Callable[P, Graph]:
    """Wraps a function so that it returns the same object for the same arguments.

    A sweep builds its graphs when it is checked and again when it runs, so the last ones are kept.
    """
    known: dict[str, Graph] = {}  # in the order of their last use

    @functools.wraps(make)
    def call(*args: P.args, **kwargs: P.kwargs) -> Graph:
        bound = inspect.signature(make).bind(*args, **kwargs)
        bound.apply_defaults()
        key = json.dumps(bound.arguments, default=str)
        known[key] = known.pop(key, None) or make(*args, **kwargs)
        if len(known) > KEPT:
            del known[next(iter(known))]
        return known[key]

    return call
