"""Builds a graph from the tensors of a data set: checks and converts them."""

import hashlib
import warnings
from typing import Literal

import torch
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.data.graphs.graph import Graph, check_graph, row_normalised, to_csr

DENSITY = 0.1  # features with a smaller fraction of non-zero entries are stored as CSR
Masks = tuple[Tensor, Tensor, Tensor]
FeatureKind = Literal["own", "degree", "identity"]


def build(
    name: str,
    x: Tensor | None,
    y: Tensor | None,
    edge_index: Tensor | None,
    masks: Masks,
    num_nodes: int,
    weights: Tensor | None = None,
    undirected: bool = True,
    features: FeatureKind = "own",
    row_normalize: bool = False,
    checksum: str | None = None,
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
        features: ``own``: x; ``degree``: one-hot of the number of neighbours; ``identity``: one-hot
            of the node.
        row_normalize: divide each feature row by its sum + 1e-6.
        checksum: of the raw files; None: that of features, labels, edges and weights.

    Raises:
        InputError: tensors have wrong shapes, types or values.
    """
    y = labels(name, y, num_nodes)
    edges, weights = entries(name, edge_index, weights, num_nodes, undirected)
    x = _one_hot(features, edges, num_nodes) if features != "own" else real(name, x, num_nodes)
    x = normalised(name, x) if row_normalize else x
    classes = int(y.max()) + 1
    checksum = checksum or _checksum(x, y, edges, weights)
    return check_graph(Graph(name, x, y, edges, classes, *masks, checksum, weights), "warn")


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
    low, high = (
        (int(f()) for f in (edge_index.min, edge_index.max)) if edge_index.numel() else (0, 0)
    )
    if low < 0 or high >= num_nodes:
        raise InputError(
            f"data {name}: an edge names node {low if low < 0 else high}, and nodes are 0 to "
            f"{num_nodes - 1}; fix the raw data"
        )
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
        raise InputError(
            f"data {name}: it has no node features; choose one-hot ones with data.features=degree "
            "or data.features=identity"
        )
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
    """Divides each row by its sum + 1e-6."""
    if ((x.values() if x.is_sparse_csr else x) < 0).any():
        raise InputError(
            f"data {name}: features below 0 cannot be divided by their sum; set "
            "data.row_normalize=false"
        )
    return row_normalised(x) if x.is_sparse_csr else x / (x.sum(dim=1, keepdim=True) + 1e-6)


def _one_hot(features: FeatureKind, edges: Tensor, num_nodes: int) -> Tensor:
    """Returns one-hot features of the nodes or of their number of neighbours, in CSR."""
    columns = torch.arange(num_nodes)
    if features == "degree":
        columns = edges[0][edges[0] != edges[1]].bincount(minlength=num_nodes)
    ones, shape = torch.ones(num_nodes), (num_nodes, int(columns.max()) + 1)
    with warnings.catch_warnings():  # torch warns that CSR is in beta
        warnings.simplefilter("ignore", UserWarning)
        pointers = torch.arange(num_nodes + 1)
        return torch.sparse_csr_tensor(pointers, columns, ones, shape, check_invariants=True)


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
