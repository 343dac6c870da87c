"""The sites of a network: where its aggregators act.

A network sorts its aggregators once, builds new instances for each of its layers, and applies
them to its tokens::

    sites = Sites(aggregators, dim, host="backbone vit")
    inside, after = sites.build("inside", head_dim), sites.build("after", dim)
    ...
    mixed = inside(M @ v, v, context)
    x = after(project(mixed), context)
"""

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import Aggregator, Context, checked, make
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError

SITES = ("inside", "instead", "after")  # of a network, in the order in which they act
EVERY = (*SITES, "before", "edges", "messages", "graph")
WHERE = {
    "instead": "instead of",
    "edges": "on the edges of",
    "messages": "on the messages of",
    "graph": "on the graph before",
}
VALUES = "values"  # offered by networks that keep the values of their first layer
SHOWN = "shown"  # offered by networks that show the tokens and the maps of an attention
Factory = Callable[..., Aggregator]


class Chain(nn.ModuleList):
    """Aggregators of one site, applied in their order; an empty chain returns its input."""

    def forward(self, x: Tensor, *others: Tensor | Context) -> Tensor:
        """Applies every aggregator to the output of the one before.

        Args:
            x: ``mixed`` at the site inside, else tokens.
            others: the values v at the site inside, then the context.

        Raises:
            InputError: an aggregator returns another shape.
        """
        for aggregator in self:
            x = checked(aggregator, x, aggregator(x, *others))
        return x


class Sites:
    """Factories of aggregators, sorted by the sites where their aggregators act.

    ``NoAggregator`` is left out.

    Args:
        factories: in the order in which the aggregators of a site act.
        dim: channels C of the network's tokens.
        host: name of the network, for error messages.
        offered: sites that the network has.

    Raises:
        InputError: the network lacks a site, or an aggregator replaces the mixing that another
            one acts on.
    """

    def __init__(
        self, factories: Sequence[Factory], dim: int, host: str, offered: Sequence[str] = SITES
    ) -> None:
        self.factories: dict[str, list[Factory]] = {site: [] for site in EVERY}
        for factory in factories:
            kind = kind_of(factory, dim)
            if not issubclass(kind, NoAggregator):
                _require(kind, host, offered)
                self.factories[kind.site].append(factory)
        inside, instead = self.factories["inside"], self.factories["instead"]
        if len(instead) > 1 or (instead and inside):
            raise InputError(
                "aggregator: one that replaces the mixing cannot be combined with another one "
                "inside or instead of it; drop one of the two"
            )

    def has(self, *sites: str) -> bool:
        """Returns whether an aggregator acts at one of these sites."""
        return any(self.factories[site] for site in sites)

    def build(self, site: str, dim: int, **sizes: int) -> Chain:
        """Builds the aggregators of a site for tokens of ``dim`` channels; see ``make``."""
        return Chain(make(factory, dim, **sizes) for factory in self.factories[site])


def scale_branches(factories: Sequence[Factory], dim: int) -> bool:
    """Whether all aggregators scale a branch before its residual sum."""
    return bool(factories) and all(kind_of(factory, dim).of_branches for factory in factories)


def kind_of(factory: Factory, dim: int) -> type[Aggregator]:
    """Returns the class of the aggregators that a factory builds.

    A function is called to find out. The state of torch's random numbers is restored.

    Raises:
        InputError: it builds no aggregator.
    """
    kind = inspect.unwrap(factory)
    kind = getattr(kind, "func", kind)  # of a functools.partial
    if not isinstance(kind, type):
        with torch.random.fork_rng(devices=[]):
            kind = type(make(factory, dim))
    return require_aggregator(kind)


def require_aggregator(kind: type) -> type[Aggregator]:
    """Returns a class of aggregators; raises InputError for any other."""
    if not issubclass(kind, Aggregator) or not hasattr(kind, "site"):
        raise InputError(
            f"aggregator: {kind.__name__} derives from none of Inside, After and Instead; "
            "derive it from one of these in oversmoothing.aggregators.base"
        )
    return kind


def _require(kind: type[Aggregator], host: str, offered: Sequence[str]) -> None:
    if kind.reads_values and VALUES not in offered:
        raise InputError(
            f"aggregator {kind.__name__} needs the values of the first layer, which {host} does "
            "not keep; use it in a vision transformer, or put it into a transformer of timm, "
            "transformers or torch with oversmoothing.apply"
        )
    hidden = (kind.reads_tokens or kind.reads_maps) and SHOWN not in offered
    if kind.site not in offered or hidden:
        where = "on the attention in" if hidden else WHERE.get(kind.site, kind.site)
        raise InputError(
            f"aggregator {kind.__name__} acts {where} the mixing, and {host} offers "
            f"only: {', '.join(own for own in EVERY if own in offered)}; choose an aggregator of "
            "one of these sites"
        )
