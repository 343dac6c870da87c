"""Half-Hop (Azabou et al., ICML 2023): a graph with a slow node on every edge, for any network."""

from dataclasses import replace

import torch.nn.functional as F

from oversmoothing.aggregators.half_hop import HalfHop
from oversmoothing.errors import InputError
from oversmoothing.lab.data.graph import Graph, check_graph, to_csr


def upsampled(of: Graph, name: str = "", alpha: float = 0.5) -> Graph:
    """Puts a slow node on every edge of a graph but self-loops; it has no label and is in no mask.

    Its features are a weighted mean of those of both ends of the edge, so the graph needs the
    memory of N + E dense rows of features while it is built.

    Args:
        of: the graph.
        name: in the names of runs.
        alpha: share of the source in the features of a slow node, see ``HalfHop``.

    Raises:
        InputError: alpha is not from 0 to 1.
    """
    if not 0 <= alpha <= 1:
        raise InputError(f"data.alpha: expected a number from 0 to 1, got {alpha}")
    x = of.x.to_dense() if of.x.is_sparse_csr else of.x
    new = HalfHop(alpha)(x, of.edges.flip(0))
    added = len(new.x) - of.num_nodes
    masks = {part: F.pad(getattr(of, part), (0, added)) for part in ("train", "val", "test")}
    return check_graph(
        replace(
            of,
            name=name or of.name,
            x=to_csr(new.x) if of.x.is_sparse_csr else new.x,
            y=F.pad(of.y, (0, added), value=-1),
            edges=new.edge_index.flip(0),
            weights=None if of.weights is None else of.weights[new.edges],
            **masks,
        ),
        without_training="warn",
    )
