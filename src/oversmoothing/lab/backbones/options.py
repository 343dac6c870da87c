"""Options that several backbones have; a value out of range raises InputError."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from typing import ClassVar, Literal, get_args, get_origin

import torch
from torch import Tensor, nn

from oversmoothing.checks import above, at_least, check_choice, require
from oversmoothing.errors import InputError


class Configured(nn.Module):
    """A network whose options are the fields of a dataclass, ``Options``.

    A subclass extends the dataclass of its base. The constructor takes the fields as keywords
    (``**options``), and its signature lists them: configs are checked against it.
    """

    Options: ClassVar[type]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        every = signature(cls.__init__).parameters.values()
        given = [own for own in every if own.name not in ("self", "options")]
        options = signature(cls.Options).parameters.values()
        keywords = [own.replace(kind=Parameter.KEYWORD_ONLY) for own in options]
        cls.__signature__ = Signature([*given, *keywords])


@dataclass(frozen=True, eq=False)
class GraphOptions:
    """The options of all graph networks.

    Args:
        depth: number of graph convolutions L.
        hidden: channels of all layers but the last.
        dropout: rate before every layer, also for input features.
        drop_edge: rate at which each training step drops edges of A, both directions together, the
            same in all layers. Ã is normalised anew (DropEdge: Rong et al., ICLR 2020).
        adjacency: ``row``: D⁻¹(A + I), whose rows sum to 1; ``symmetric``: D^-½(A + I)D^-½.
        share_aggregators: one instance of each aggregator for all hidden layers, as in
            ContraNorm's code with its LayerNorm; otherwise one for each layer.
        init: the initial weights, see ``drawn_weight``.
        variance: their σ². At 2, ReLU layers without mixing keep the size of features (He et al.,
            2015); mixing needs more. With ReLU σ² changes only that size: the phase without
            oversmoothing at a large σ² (Epping et al., NeurIPS 2024, arXiv:2406.02269) needs an
            activation such as erf.
        drop_node: share of the nodes that every layer drops in training; the rest is scaled up
            (``DropNode``).
        drop_message: the same for entries of the messages (``DropMessage``).
        drop_input: also dropout of the input features.

    Raises:
        InputError: an option out of range.
    """

    depth: int = 2
    hidden: int = 32
    dropout: float | Tensor = 0.6
    drop_edge: float = 0.0
    adjacency: Literal["row", "symmetric"] = "row"
    share_aggregators: bool = True
    init: Literal["uniform", "glorot", "normal", "orthogonal"] = "uniform"
    variance: float = 2.0
    drop_node: float = 0.0
    drop_message: float = 0.0
    drop_input: bool = True

    def __post_init__(self) -> None:
        check_positive(depth=self.depth, hidden=self.hidden)
        require("backbone", **above(0, variance=self.variance))
        for key in ("dropout", "drop_edge", "drop_node", "drop_message"):
            check_rate(key, getattr(self, key))
        for field in fields(self):
            if get_origin(field.type) is Literal:
                value = getattr(self, field.name)
                check_choice(f"backbone.{field.name}", value, get_args(field.type))


Branch = Literal["plain", "rezero", "layerscale"]
BRANCHES = {"rezero": (0.0, False), "layerscale": (1e-4, True)}  # first α, one for each channel?


def drawn_weight(init: str, variance: float, c_in: int, c_out: int) -> Tensor:
    """Draws initial weights (c_in, c_out) of a product x W.

    Args:
        init: ``uniform``: U(±1/√c_out), as in ContraNorm's code, which shrinks the features in
            every layer. ``glorot``: U(±√(6/(c_in + c_out))), as in torch-geometric. ``normal``:
            N(0, σ²/c_in). ``orthogonal``: σ times orthonormal rows or columns.
        variance: σ².
    """
    weight, sigma = torch.empty(c_in, c_out), math.sqrt(variance)
    match init:
        case "normal":
            return weight.normal_(0, sigma / math.sqrt(c_in))
        case "orthogonal":
            return nn.init.orthogonal_(weight, sigma)
        case "glorot":
            bound = math.sqrt(6 / (c_in + c_out))
        case _:
            bound = 1 / math.sqrt(c_out)
    return weight.uniform_(-bound, bound)


def drawn_bias(init: str, c_out: int) -> Tensor:
    """Draws from U(±1/√c_out) if the weights are uniform, else returns zeros, (c_out,)."""
    bound = 1 / math.sqrt(c_out) if init == "uniform" else 0.0
    return torch.empty(c_out).uniform_(-bound, bound)


def in_bf16_on_cpu(device: torch.device) -> bool:
    """Whether a CPU runs under autocast to bf16, outside ``torch.compile``."""
    bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return device.type == "cpu" and bf16 and not torch.compiler.is_compiling()


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]  # of ImageNet, RGB


def check_positive(**sizes: int | None) -> None:
    """Checks that whole numbers are 1 or more; None passes."""
    require("backbone", **at_least(1, **sizes))


def check_rate(key: str, rate: float | Tensor) -> None:
    """Checks that a rate of dropout, or each of several, is 0 or more and below 1."""
    check_each(key, rate, "a rate from 0 to below 1", lambda own: (own >= 0) & (own < 1))


def check_each(
    key: str, value: float | Tensor, expected: str, holds: Callable[[Tensor], Tensor]
) -> None:
    """Checks an option, or that of each network of a stack."""
    if not holds(torch.as_tensor(value, dtype=torch.float64)).all():
        raise InputError(f"backbone.{key}: expected {expected}, got {value}")


def per_channel(key: str, values: list[float]) -> Tensor:
    """Returns the option ``mean`` or ``std`` as a tensor (3, 1, 1); its values are of R, G, B."""
    if len(values) != 3 or key == "std" and not min(values) > 0:
        above = ", above 0" if key == "std" else ""
        raise InputError(f"backbone.{key}: expected three numbers{above}, got {values}")
    return torch.tensor(values, dtype=torch.float32).view(3, 1, 1)
