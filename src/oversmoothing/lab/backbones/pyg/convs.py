"""Finds a convolution of torch-geometric by its name, checks its options and builds it."""

import warnings
from collections.abc import Callable, Collection
from inspect import Parameter, isclass
from inspect import signature as inspected
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.errors import InputError, meant
from oversmoothing.lab.arguments import is_required, signature, signature_problems

GIVEN = ("in_channels", "out_channels", "channels", "nn", "deg")  # options that the network sets
IDENTITY_MAP = ("alpha", "theta", "layer")  # options of GCN2Conv that the network sets
NODES = ("x", "x_0", "edge_index")  # arguments of a call that every network can give
EDGES = ("edge_attr", "edge_type")  # arguments of a call that no graph here has
EDGE_SIZES = ("dim", "edge_dim", "num_relations")  # options of convolutions that need those
PRODUCTS = ("GINConv", "GraphConv", "SAGEConv")  # mix their input itself, by sums or means


class Convolution:
    """A convolution of torch-geometric, by its name, with options.

    Args:
        name: of the class in ``torch_geometric.nn``.
        options: of its constructor.

    Attributes:
        own: the parameters of the constructor.
        given: those that the network sets.
        called: the parameters of a call.
        resizes: whether input and output may differ in their number of channels.
        initial: whether it takes the initial features x_0, as GCN2Conv does.
        weighted: whether it takes edge weights.
        normalizes: whether it takes edge weights and its normalisation can be turned off.

    Raises:
        InputError: there is no such convolution, it needs more than node features and edges, or
            an option is unknown, missing or of a wrong type.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name, self.options = name, options
        self.kind = _find(name)
        self.own, self.called = _parameters(self.kind), _parameters(self.kind.forward)
        self.given = GIVEN + (IDENTITY_MAP if "layer" in self.own else ())
        self._check_call()
        self._check_options()
        self.resizes = "nn" in self.own or {"in_channels", "out_channels"} <= self.own.keys()
        self.initial = "x_0" in self.called
        self.weighted = "edge_weight" in self.called
        self.normalizes = self.weighted and "normalize" in self.own

    def build(self, c_in: int, c_out: int, logits: bool, **given: Any) -> nn.Module:
        """Builds the convolution of a layer.

        Attention heads are concatenated, each with c_out / heads channels. In the last layer they
        are averaged, as in GAT; with ``concat=false`` they are averaged in all layers.

        Args:
            c_in: channels of the input.
            c_out: channels of the output.
            logits: whether the output are the logits.
            given: further arguments, for convolutions that take them.

        Raises:
            InputError: the heads do not divide the channels, or the convolution refuses an option.
        """
        options, size = dict(self.options), c_out
        if "concat" in self.own:
            options["concat"] = options.get("concat", True) and not logits
            size = self._of_a_head(c_out) if options["concat"] else c_out
        given |= {"in_channels": c_in, "out_channels": size, "channels": c_out}
        if "nn" in self.own and is_required(self.own["nn"]):
            given["nn"] = _mlp(c_out)
        own = {key: value for key, value in given.items() if key in {*self.own} & {*self.given}}
        try:
            return self.kind(**own, **options)
        except Exception as error:  # a convolution may raise any error for a bad option
            raise self._misfit(error) from error

    def arguments(
        self, edge_index: Tensor, edge_weight: Tensor | None, initial: Tensor
    ) -> dict[str, Tensor]:
        """Returns the arguments of a call besides the node features.

        Raises:
            InputError: there are edge weights, but the convolution takes none.
        """
        arguments = {"edge_index": edge_index}
        if self.initial:
            arguments["x_0"] = initial
        if edge_weight is None:
            return arguments
        if not self.weighted:
            raise InputError(
                f"backbone.conv: the edges of this graph have weights, and {self.name} takes none; "
                "choose GCNConv, GraphConv, …, or a graph without weights"
            )
        return arguments | {"edge_weight": edge_weight}

    def multiplies(self, conv: nn.Module) -> bool:
        """Whether a convolution mixes its input by one product with the given adjacency."""
        return self.name in PRODUCTS and conv.fuse and conv.aggr in ("add", "sum", "mean")

    def refusal(self, error: Exception) -> InputError:
        """Returns the InputError for a call that failed."""
        missing = set(EDGES) & self.called.keys()
        return _needs(self.name, missing) if missing else self._misfit(error)

    def _misfit(self, error: Exception) -> InputError:
        said = str(error).split("\n")[0].split(". ")[0] or type(error).__name__
        return InputError(
            f"backbone.conv: {self.name} does not run on node features and edges with these "
            f"options ({said}); choose others with backbone.options.…, or another convolution"
        )

    def _of_a_head(self, c_out: int) -> int:
        heads = self.options.get("heads", 1)
        if heads < 1 or c_out % heads:
            raise InputError(
                f"backbone.options.heads: expected a divisor of backbone.hidden={c_out}, got "
                f"{heads}; change one of the two, or average with backbone.options.concat=false"
            )
        return c_out // heads

    def _check_call(self) -> None:
        needed = {name for name, p in self.called.items() if is_required(p)} - set(NODES)
        if needed:
            raise _needs(self.name, needed)
        if not {"x", "edge_index"} <= self.called.keys():
            raise InputError(
                f"backbone.conv: {self.name} takes no edges; choose GCNConv, SAGEConv, GATConv, …"
            )

    def _check_options(self) -> None:
        if "cached" in self.options:
            raise InputError(
                "backbone.options.cached: networks also run on parts of a graph, so they keep "
                "nothing; leave it out"
            )
        known = {name: p for name, p in self.own.items() if p.kind is not p.VAR_KEYWORD}
        if len(known) < len(self.own):
            known = _parameters(_library().MessagePassing) | known
        hints = signature(self.kind)[1]
        unfit = signature_problems("backbone.options.", (known, hints), self.options, None)
        if taken := set(self.given) & self.options.keys():
            raise InputError(
                f"backbone.options.{min(taken)}: the network sets it from its own options, such as "
                "backbone.hidden and backbone.alpha; leave it out"
            )
        if unfit:
            raise InputError(unfit[0])
        required = [name for name, p in self.own.items() if is_required(p)]
        missing = [name for name in required if name not in (*self.options, *self.given)]
        if set(missing) & set(EDGE_SIZES):
            raise _needs(self.name, set(EDGES) & self.called.keys())
        if missing:
            key = f"backbone.options.{missing[0]}"
            raise InputError(f"{key}: {self.name} needs it; add +{key}=…")


def degrees_of(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Counts the nodes of every degree, from 0."""
    return torch.bincount(torch.bincount(edge_index[1], minlength=num_nodes))


def _library() -> ModuleType:
    try:
        with warnings.catch_warnings():  # importing torch-geometric warns of torch.jit
            warnings.simplefilter("ignore", FutureWarning)
            import torch_geometric.nn as library
    except ImportError as error:
        raise InputError(
            f"backbone: pyg needs torch-geometric ({error}); pip install torch-geometric"
        ) from error
    return library


def _find(name: str) -> type[nn.Module]:
    library = _library()
    if (kind := getattr(library, name, None)) is None:
        known = [name for name, found in vars(library).items() if _is_convolution(found)]
        raise InputError(f"backbone.conv: torch_geometric.nn has no {name!r}; {meant(name, known)}")
    if not _is_convolution(kind):
        raise InputError(
            f"backbone.conv: {name} is not a convolution (MessagePassing) of torch_geometric.nn; "
            "choose GCNConv, SAGEConv, GATConv, …"
        )
    return kind


def _is_convolution(found: Any) -> bool:
    base = _library().MessagePassing
    return isclass(found) and issubclass(found, base) and found is not base


def _parameters(function: Callable) -> dict[str, Parameter]:
    named = dict(inspected(function).parameters)
    named.pop("self", None)
    return named


def _needs(name: str, what: Collection[str]) -> InputError:
    return InputError(
        f"backbone.conv: {name} needs {' and '.join(sorted(what))}, and graphs here have node "
        "features, edges and edge weights only; choose GCNConv, SAGEConv, GATConv, …"
    )


def _mlp(c_out: int) -> nn.Module:
    """Builds the network inside GINConv and the like; its first call sets the input channels."""
    linear = _library().Linear
    return nn.Sequential(linear(-1, c_out), nn.ReLU(), linear(c_out, c_out))
