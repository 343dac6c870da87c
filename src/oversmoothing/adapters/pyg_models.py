"""Places for aggregators at the graph convolutions of torch-geometric.

Inside a convolution, they act where it calls ``propagate``. After it, they act on its output.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from inspect import signature

from torch import nn

from oversmoothing.adapters.choice import Choice
from oversmoothing.adapters.current import Capture, Current, graphs
from oversmoothing.adapters.groups import Groups
from oversmoothing.adapters.pyg_channels import mixed_channels, output_channels
from oversmoothing.adapters.pyg_edges import between_targets, with_edges
from oversmoothing.adapters.pyg_inside import InsidePropagate
from oversmoothing.adapters.site import AfterModule, Placed
from oversmoothing.adapters.sites import Factory, Sites
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError


class AfterConvolution(AfterModule):
    """Acts on the output of a convolution; its aggregators can read the edges.

    In a bipartite graph only targets have outputs, so only targets can be neighbours. If the first
    sources have the features of the targets, as in batches of ``NeighborLoader``, they are taken to
    be the targets. Otherwise sources are other nodes, and no two targets are neighbours.
    """

    def connect(self, module: nn.Module) -> None:
        super().connect(module)
        self.names = list(signature(module.forward).parameters)

    def of_call(self, module: nn.Module, args: tuple, kwargs: dict, num_tokens: int) -> Context:
        given = dict(zip(self.names, args)) | kwargs
        edges, x = given.get("edge_index"), given.get("x")
        context = with_edges(self.context, self, module, edges, num_tokens)
        if context.edges is None or not isinstance(x, tuple | list):
            return context
        return replace(context, edges=between_targets(context.edges, x, num_tokens))


BATCH = ("batch", "batch_index", "batch_idx", "batch_vector")  # names of PyG's vector


class GraphCapture(Capture):
    """Reads the graph of every node from any argument that is a ``Data``, or named in ``BATCH``.

    Args:
        current: takes the groups.
        names: of the parameters of forward.
    """

    def __init__(self, current: Current, names: Sequence[str]) -> None:
        super().__init__(current)
        self.names = names

    def groups(self, args: tuple, kwargs: dict) -> Groups | None:
        given = dict(zip(self.names, args)) | kwargs
        may = (v for n, v in given.items() if n in BATCH or hasattr(v, "edge_index"))
        return next((found for found in map(graphs, may) if found is not None), None)


def place(
    model: nn.Module,
    choice: Choice,
    factories: Sequence[Factory],
    where: str | None,
    current: Current,
) -> list[Placed]:
    """Builds new sites for the convolutions.

    Aggregators of the site after act after every convolution except the last, whose output is often
    that of the model. They act after the last one, too, if the user names its block.

    Raises:
        InputError: ``where`` is given.
    """
    if where is not None:
        raise InputError(
            f"where: at graph convolutions, leave it out, or give a pattern of module names, got "
            f"{where!r}"
        )
    placed: list[Placed] = []
    for name, block in choice.blocks.items():
        convolutions = [module for module in block.modules() if hasattr(module, "propagate")]
        if not convolutions:
            raise InputError(
                f"blocks: {name} ({type(block).__name__}) has no graph convolution; leave it out "
                "of blocks=, or give where= as a pattern of module names"
            )
        for conv in convolutions:
            out = output_channels(conv, factories)
            sites = Sites(factories, out, type(model).__name__, ("inside", "after"))
            if sites.has("inside"):
                dim = mixed_channels(conv, sites.factories["inside"])
                site = InsidePropagate(sites.build("inside", dim), current=current)
                placed.append(Placed(conv, site))
            if sites.has("after") and (choice.named or block is not choice.last):
                site = AfterConvolution(sites.build("after", out), current=current, dim=out)
                placed.append(Placed(conv, site))
    return placed


def is_causal(model: nn.Module, part: nn.Module) -> bool:
    """Returns False, since graphs are not causal."""
    return False


def readers(model: nn.Module, names: Iterable[str], current: Current) -> list[Placed]:
    """Returns the hook that reads the graph of every node from the arguments of the model."""
    return [Placed(model, GraphCapture(current, [*signature(model.forward).parameters]))]
