"""The options of a network."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from oversmoothing.checks import check_choice
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.options import check_positive, check_rate
from oversmoothing.lab.backbones.pyg.convs import Convolution

Skip = Literal["none", "residual", "initial"]
Jumping = Literal["none", "cat", "max", "lstm"]
Adjacency = Literal["conv", "row", "symmetric"]
OF_SKIP = {"interval": ("residual", 1), "alpha": ("initial", 0.1), "lam": ("initial", 0.5)}


@dataclass(frozen=True)
class Design:
    """The options of ``Networks``, which explains them.

    Raises:
        InputError: an option is out of range, or options do not fit each other.
    """

    conv: str
    options: dict[str, Any]
    depth: int
    hidden: int
    dropout: float
    skip: Skip
    interval: int
    alpha: float
    lam: float
    jumping: Jumping
    drop_edge: float
    adjacency: Adjacency
    share_aggregators: bool

    def __post_init__(self) -> None:
        check_positive(depth=self.depth, hidden=self.hidden, interval=self.interval)
        check_rate("dropout", self.dropout)
        check_rate("drop_edge", self.drop_edge)
        for key, kind in (("skip", Skip), ("jumping", Jumping), ("adjacency", Adjacency)):
            check_choice(f"backbone.{key}", getattr(self, key), get_args(kind))
        if not 0 <= self.alpha <= 1:
            raise InputError(f"backbone.alpha: expected a number from 0 to 1, got {self.alpha}")
        if not self.lam >= 0:
            raise InputError(f"backbone.lam: expected 0 or more, got {self.lam}")
        if self.skip == "initial" and self.convolution.initial:
            raise InputError(
                f"backbone.skip: {self.conv} already takes the initial features; use skip=none"
            )
        self._require_readers()

    def _require_readers(self) -> None:
        """Refuses values other than the default for options that have no effect."""
        initial = self.skip == "initial" or self.convolution.initial
        read = {"interval": self.skip == "residual", "alpha": initial, "lam": initial}
        for key, (skip, default) in OF_SKIP.items():
            if not read[key] and getattr(self, key) != default:
                raise InputError(
                    f"backbone.{key}: only backbone.skip={skip} reads it; set that, or leave "
                    f"{key}={default}"
                )

    @cached_property
    def convolution(self) -> Convolution:
        """The convolution; it normalises the adjacency only if ``adjacency`` is ``conv``."""
        found = Convolution(self.conv, self.options)
        if self.adjacency == "conv":
            return found
        if not found.normalizes:
            raise InputError(
                f"backbone.adjacency: {self.conv} takes no edge weights or always normalises them; "
                "use adjacency=conv"
            )
        off = {"normalize": False, "add_self_loops": False}
        return Convolution(
            self.conv, self.options | {k: v for k, v in off.items() if k in found.own}
        )

    @property
    def reads_in(self) -> bool:
        """Whether a linear layer comes before the convolutions."""
        keeps = self.convolution.initial or not self.convolution.resizes
        return keeps or self.skip == "initial"

    @property
    def reads_out(self) -> bool:
        """Whether a linear layer comes after the convolutions."""
        return self.reads_in or self.jumping != "none"
