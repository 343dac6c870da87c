"""One colour and one marker for each method, in every figure."""

import re
from collections.abc import Iterable
from typing import Any

from matplotlib import colormaps

# Black and Okabe and Ito's colours for the colour-blind, then darker ones for the rest. A label has
# the style of the first method whose words it contains: `centered + LayerNorm` that of centering.
METHODS = {
    "none": ("#000000", "o", r"none|no method|vanilla|plain|^without|γ = 0(?![.\d])|^trained$"),
    "tuned": ("#117733", "d", r"^tuned"),
    "GraphCON": ("#44AA99", "p", r"GraphCON"),
    "GPRGNN": ("#882255", "*", r"GPRGNN"),
    "centered": ("#0072B2", "v", r"centered|γ = "),
    "GCNII": ("#D55E00", "X", r"GCNII|initial"),
    "LayerNorm + residual": ("#332288", "h", r"LayerNorm ?\+ ?residual"),
    "residual": ("#CC79A7", "P", r"(?<!value_)residual"),
    "JKNet": ("#8C564B", "<", r"JKNet|jumping"),
    "ContraNorm": ("#009E73", "^", r"ContraNorm"),
    "PairNorm": ("#56B4E9", "D", r"PairNorm"),
    "LayerNorm": ("#E69F00", "s", r"LayerNorm"),
    "DropEdge": ("#888888", ">", r"DropEdge|drop_edge"),
    "InstanceNorm": ("#B8A000", "p", r"InstanceNorm"),
    "external attention": ("#7F3C8D", "h", r"external"),
}
GAMMA = re.compile(r"γ = [-−]([\d.]+)")
FADED = "Blues"  # of centering: the darker, the nearer γ is to −1
VARIANT = re.compile(r"γ = \S+, |\(code\)|with weights|, random$")
DASHES = (0, (4, 2))
SPARE = ("#7F3C8D", "#B8A000", "#888888", "#8C564B")  # of labels that name no method


def styles_of(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns colour, marker and, for a variant of a method, dashes for each label.

    Centering gets a darker blue for a γ nearer to −1. Labels that name no method get the colours of
    rare methods, in the order of the labels.
    """
    found: dict[str, dict[str, Any]] = {}
    unknown = 0
    for label in dict.fromkeys(labels):
        name = method_of(label)
        if name is None:
            colour, marker = SPARE[unknown % len(SPARE)], "ospd"[unknown % 4]
            unknown += 1
        else:
            colour, marker, _ = METHODS[name]
        if name == "centered" and (gamma := GAMMA.search(label)):
            colour = shade(float(gamma[1]))
        found[label] = {"color": colour, "marker": marker}
        if VARIANT.search(label):
            found[label]["linestyle"] = DASHES
    return found


def method_of(label: str) -> str | None:
    """Returns the method that a label names, or None."""
    return next((name for name, (*_, words) in METHODS.items()
                 if re.search(words, label, re.IGNORECASE)), None)  # fmt: skip


def shade(size: float) -> Any:
    """Returns the blue of γ = −size; that of γ = −1 is the colour of centering."""
    if size == 1:
        return METHODS["centered"][0]
    return colormaps[FADED](0.35 + 0.5 * min(size, 1.5))


def shown(label: str) -> str:
    """Returns a label without what only the tables of the papers need."""
    return re.sub(r"^w/ | \(w/ Ours\)| \(control\)", "", label)
