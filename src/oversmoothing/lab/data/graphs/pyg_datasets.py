"""Loads data sets of torch-geometric that are one graph with a class for each node."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.data.checksum import short_sha256
from oversmoothing.lab.data.graphs import pyg, splits
from oversmoothing.lab.data.graphs.build import FeatureKind, build, labels
from oversmoothing.lab.data.graphs.graph import Graph
from oversmoothing.lab.data.graphs.kept import kept
from oversmoothing.lab.data.graphs.pyg_class import DatasetClass

if TYPE_CHECKING:  # importing torch-geometric takes seconds
    from torch_geometric.data import Data, Dataset


@kept
def load(
    dataset: str = "HeterophilousGraphDataset",
    options: dict[str, Any] | None = None,
    name: str | None = None,
    split: int | Literal["each"] = 0,
    split_sizes: list[float] | None = None,
    features: FeatureKind = "own",
    row_normalize: bool = False,
    undirected: bool = True,
    weights: bool = True,
    seed: int = 0,
    root: str = "data",
    cache: str = "outputs/cache",
) -> Graph:
    """Loads a data set of ``torch_geometric.datasets``; the same arguments give the same object.

    torch-geometric downloads missing raw files and does not verify them. The checksum of the graph
    is computed from its features, labels, edges and weights.

    Args:
        dataset: a class, such as ``HeterophilousGraphDataset``, ``WikiCS``, ``Actor``.
        options: of the class, such as ``{name: Roman-empire}``.
        name: of the graph in messages; None: ``dataset``.
        split: which of several splits; ``each``: all of them, and the network of seed s is trained
            on split s modulo their number.
        split_sizes: None: the data set's own masks. Otherwise ten random splits are drawn, by
            fractions of every class, such as [0.6, 0.2, 0.2], or by numbers of training nodes of
            every class, validation nodes and test nodes, such as [20, 500, 1000].
        features: ``own``, or one-hot features: ``degree`` of the number of neighbours, ``identity``
            of the node.
        row_normalize: divide each feature row by its sum + 1e-6.
        undirected: add the reverse of every edge; False keeps the data set's directions.
        weights: use edge weights, if there are any.
        seed: of random splits, and of a data set that draws its graph.
        root: raw files are in ``<root>/graphs/<dataset>``; it is written only to download.
        cache: folder for torch-geometric's processed files.

    Raises:
        InputError: a name or an option is unknown, files are not available, or the data set is of
            another kind.
    """
    chosen = DatasetClass(dataset, options or {})
    key = json.dumps([dataset, options or {}, seed], sort_keys=True)
    folder = f"{dataset}-{short_sha256(key.encode())}"
    processed = Path(cache) / "graphs" / f"pyg-{pyg.version()}" / folder
    name = name or dataset
    data = _one_graph(name, chosen.read(Path(root) / "graphs" / dataset, processed, seed))
    if split_sizes is None:
        masks = _own_masks(name, data)
    else:
        masks = splits.drawn(name, labels(name, data.y, data.num_nodes), split_sizes, seed)
    return build(
        name=name,
        x=data.x,
        y=data.y,
        edge_index=data.edge_index,
        masks=splits.chosen(name, masks, split),
        num_nodes=data.num_nodes,
        weights=_weights(name, data) if weights else None,
        undirected=undirected,
        features=features,
        row_normalize=row_normalize,
    )


def _one_graph(name: str, dataset: "Dataset") -> "Data":
    """Returns the only graph of a data set; checks that it has nodes and edges of one type."""
    from torch_geometric.data import Data, HeteroData

    if len(dataset) != 1:
        raise InputError(
            f"data {name}: it has {len(dataset)} graphs; choose a data set of one graph, whose "
            "nodes are classified"
        )
    data = dataset[0]
    if isinstance(data, HeteroData):
        kinds = ", ".join(data.node_types)
        raise InputError(
            f"data {name}: its nodes are of several types ({kinds}); choose a data set whose nodes "
            "and edges are all of one type"
        )
    if not isinstance(data, Data):
        raise InputError(
            f"data {name}: it is not a graph of nodes and edges; choose another data set"
        )
    return data


def _own_masks(name: str, data: "Data") -> splits.Masks:
    """Returns the masks of a data set, (splits, N)."""
    masks = [getattr(data, f"{part}_mask", None) for part in ("train", "val", "test")]
    if any(mask is None for mask in masks):
        lacks = "no masks" if all(mask is None for mask in masks) else "not all three masks"
        raise InputError(
            f"data {name}: it comes with {lacks}; draw ten splits with "
            "data.split_sizes=[0.6,0.2,0.2] (fractions of training, validation and test nodes) or "
            "[20,500,1000] (training nodes of a class, validation and test nodes)"
        )
    rows = [mask.bool().view(data.num_nodes, -1).T for mask in masks]
    number = max(len(mask) for mask in rows)
    return tuple(mask.expand(number, -1).contiguous() for mask in rows)


def _weights(name: str, data: "Data") -> Tensor | None:
    """Returns the edge weights: ``edge_weight``, or ``edge_attr`` if it has only one column."""
    attributes = data.edge_attr if data.edge_attr is not None else data.edge_weight
    columns = 1 if attributes is None else attributes.shape[1:].numel()
    if data.edge_weight is None and columns > 1:
        warnings.warn(
            f"data {name}: {columns} attributes of every edge are left out",
            stacklevel=2,
        )
        return None
    return attributes if data.edge_weight is None else data.edge_weight
