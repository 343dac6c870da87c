"""Options that several backbones have; a value out of range raises InputError."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from typing import ClassVar, Literal, get_args, get_origin

import torch
from torch import Tensor, nn

from oversmoothing.checks import at_least, check_choice, require
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

    Raises:
        InputError: an option out of range.
    """

    depth: int = 2
    hidden: int = 32
    dropout: float | Tensor = 0.6
    drop_edge: float = 0.0
    adjacency: Literal["row", "symmetric"] = "row"
    share_aggregators: bool = True

    def __post_init__(self) -> None:
        check_positive(depth=self.depth, hidden=self.hidden)
        check_rate("dropout", self.dropout)
        check_rate("drop_edge", self.drop_edge)
        for field in fields(self):
            if get_origin(field.type) is Literal:
                value = getattr(self, field.name)
                check_choice(f"backbone.{field.name}", value, get_args(field.type))


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
