"""The convolutions of torch-geometric: which ones, their options, their edges and degrees."""

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, isclass
from inspect import signature as inspected
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError, meant
from oversmoothing.lab.arguments import is_required, signature, signature_problems
from oversmoothing.lab.backbones.options import (
    Branch,
    GraphOptions,
    check_positive,
    drawn_bias,
    drawn_weight,
)
from oversmoothing.lab.backbones.sparse import normalised

OF_SKIP = {
    "interval": ("residual", 1),
    "branch": ("residual", "plain"),
    "alpha": ("initial", 0.1),
    "lam": ("initial", 0.5),
}


@dataclass(frozen=True, eq=False)
class Design(GraphOptions):
    """The options of ``pyg.Networks``.

    Args:
        adjacency: ``conv``: as the convolution normalises it; ``row`` and ``symmetric`` as in
            ``GraphOptions``.
        share_aggregators: use one instance of each aggregator in all layers that have the same
            numbers of channels; otherwise each layer has its own.
        conv: name of a class of ``torch_geometric.nn``.
        options: of the convolution.
        skip: ``residual``: h + layer(h). ``initial``: GCNII's initial residual and identity map.
        interval: for ``residual``: layers between two sums, as ``residual`` of ``backbone=gcn``.
        branch: for ``residual``: as ``branch`` of ``backbone=gcn``.
        alpha: for ``initial`` and GCN2Conv: weight α of the initial features.
        lam: for ``initial`` and GCN2Conv: λ of the identity map, whose weight in layer l is
            log(λ/l + 1); 0: no identity map.
        jumping: how the outputs of all layers are combined for the readout (Xu et al., ICML 2018).
        init: ``conv``: as the convolution draws its weights; the others draw all of its products
            and biases, and the linear layers, as in ``GraphOptions``, but no vectors of attention.
        others: see ``GraphOptions``.

    Raises:
        InputError: an option is out of range, or options do not fit each other.
    """

    dropout: float = 0.6
    adjacency: Literal["conv", "row", "symmetric"] = "conv"
    conv: str = "GCNConv"
    options: dict[str, Any] | None = None
    skip: Literal["none", "residual", "initial"] = "none"
    interval: int = 1
    branch: Branch = "plain"
    alpha: float = 0.1
    lam: float = 0.5
    jumping: Literal["none", "cat", "max", "lstm"] = "none"
    init: Literal["conv", "uniform", "glorot", "normal", "orthogonal"] = "conv"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(interval=self.interval)
        if not 0 <= self.alpha <= 1:
            raise InputError(f"backbone.alpha: expected a number from 0 to 1, got {self.alpha}")
        require("backbone", **at_least(0, lam=self.lam))
        if self.skip == "initial" and self.convolution.initial:
            raise InputError(
                f"backbone.skip: {self.conv} already takes the initial features; use skip=none"
            )
        self._require_readers()

    def _require_readers(self) -> None:
        """Refuses values other than the default for options that have no effect."""
        initial = self.skip == "initial" or self.convolution.initial
        summed = self.skip == "residual"
        read = {"interval": summed, "branch": summed, "alpha": initial, "lam": initial}
        for key, (skip, default) in OF_SKIP.items():
            if not read[key] and getattr(self, key) != default:
                raise InputError(
                    f"backbone.{key}: only backbone.skip={skip} reads it; set that, or leave "
                    f"{key}={default}"
                )

    @cached_property
    def convolution(self) -> "Convolution":
        """The convolution; it normalises the adjacency only if ``adjacency`` is ``conv``."""
        options = self.options or {}
        found = Convolution(self.conv, options)
        if self.adjacency == "conv":
            return found
        if not found.normalizes:
            raise InputError(
                f"backbone.adjacency: {self.conv} takes no edge weights or always normalises them; "
                "use adjacency=conv"
            )
        off = {"normalize": False, "add_self_loops": False}
        own = {key: value for key, value in off.items() if key in found.own}
        return Convolution(self.conv, options | own)

    @property
    def of_input(self) -> float:
        """The rate of dropout of the input features."""
        return self.dropout if self.drop_input else 0.0

    @property
    def reads_in(self) -> bool:
        """Whether a linear layer comes before the convolutions."""
        keeps = self.convolution.initial or not self.convolution.resizes
        return keeps or self.skip == "initial"

    @property
    def reads_out(self) -> bool:
        """Whether a linear layer comes after the convolutions."""
        return self.reads_in or self.jumping != "none"


def with_loops(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, kind: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Returns edges and weights of D⁻¹(A + I) (``row``) or D^-½(A + I)D^-½ (``symmetric``).

    A self-loop of A is added to that of I, as in ``backbone=gcn``.

    Args:
        edge_index: source and target of every edge, (2, E).
        edge_weight: (E,); None: all 1.
        num_nodes: N.
        kind: ``row`` or ``symmetric``.
        dtype: of the new weights.
    """
    loops = torch.arange(num_nodes, device=edge_index.device)
    weight = torch.ones(edge_index.shape[1] + num_nodes, dtype=dtype, device=edge_index.device)
    if edge_weight is not None:
        weight[: len(edge_weight)] = edge_weight
    edge_index = torch.cat([edge_index, loops.expand(2, -1)], dim=1)
    return edge_index, normalised(edge_index.flip(0), weight, num_nodes, kind)


def as_csr(edge_index: Tensor, edge_weight: Tensor | None, like: Tensor) -> Tensor:
    """Returns the matrix that a convolution multiplies by the features, in CSR.

    Args:
        edge_index: source and target of every edge, (2, E).
        edge_weight: (E,); None: all 1.
        like: the features, (N, C).
    """
    N, _ = like.shape
    source, target = edge_index
    order = torch.argsort(target, stable=True)
    starts = torch.searchsorted(target[order], torch.arange(N + 1, device=target.device))
    ones = torch.ones(source.shape, dtype=like.dtype, device=like.device)
    values = ones if edge_weight is None else edge_weight.to(like.dtype)[order]
    size = (N, N)
    return torch.sparse_csr_tensor(starts, source[order], values, size, check_invariants=False)


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


PLACED = ("conv.inside", "conv.messages", "after", "branch")  # aggregators in a layer


@torch.no_grad()
def redraw(part: nn.Module, init: str, variance: float) -> None:
    """Draws the weights of all products and their biases anew, but not those of aggregators."""
    linear = (nn.Linear, nn.RNNCellBase, _library().Linear)  # their weights are (c_out, c_in)
    for name, own in part.named_modules():
        if name.startswith(PLACED) or "att" in name:
            continue
        for key, value in own.named_parameters(recurse=False):
            if key.startswith("bias"):
                if isinstance(own, linear) or name == "conv":
                    value.copy_(drawn_bias(init, value.shape[-1]))
            elif value.dim() >= 2 and not key.startswith("att"):
                for matrix in value.view(-1, *value.shape[-2:]):
                    matrix = matrix.mT if isinstance(own, linear) else matrix
                    matrix.copy_(drawn_weight(init, variance, *matrix.shape))


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
