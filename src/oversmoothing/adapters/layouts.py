"""The places of aggregators in the layers of BERT, ALBERT and their relatives.

The comments give the number that a place has in BERT for ``--pos`` of ContraNorm's code.
"""

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn


class Place(NamedTuple):
    """A place directly before or directly after a module of a layer."""

    module: str
    before: bool


class Layout(NamedTuple):
    """Names of the modules of a layer: self-attention, its output projection, and the places."""

    attention: str
    projection: str
    places: Mapping[str, Place]

    def fits(self, layer: nn.Module) -> bool:
        """Returns whether a layer has all these modules."""
        names = {name for name, _ in layer.named_modules()}
        return {place.module for place in self.places.values()} <= names


BERT = Layout(
    "attention.self",
    "attention.output.dense",
    {
        "input": Place("attention", True),  # 1
        "context": Place("attention.output.dense", True),  # 2
        "projection": Place("attention.output.dropout", False),  # 3
        "attention_norm": Place("attention.output.LayerNorm", False),  # 4
        "ffn": Place("output.dropout", False),  # 5
        "output": Place("output.LayerNorm", False),  # 6
        "attention_sum": Place("attention.output.LayerNorm", True),  # 7
        "ffn_sum": Place("output.LayerNorm", True),  # 8
    },
)
ALBERT = Layout(
    "attention",
    "attention.dense",
    {
        "input": Place("attention", True),
        "context": Place("attention.dense", True),
        "projection": Place("attention.output_dropout", False),
        "attention_norm": Place("attention.LayerNorm", False),
        "ffn": Place("ffn_output", False),
        "output": Place("full_layer_layer_norm", False),
        "attention_sum": Place("attention.LayerNorm", True),
        "ffn_sum": Place("full_layer_layer_norm", True),
    },
)
LAYOUTS = (BERT, ALBERT)
