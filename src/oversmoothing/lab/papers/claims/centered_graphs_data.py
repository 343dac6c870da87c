"""Claims about the data and the sources of Table 5 of Centered Self-Attention Layers (4.3)."""

import os
from functools import partial
from pathlib import Path

from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.data.planetoid import folders, load
from oversmoothing.lab.papers.claims.claim import OWN, Claim, Finding, every, partly, share
from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError

PRINTED = {  # nodes, edges, features, classes
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "chameleon": (2277, 36101, 500, 6),
    "squirrel": (5201, 217073, 2089, 4),
}
FIFTH = {name: (nodes // 5, -(-nodes // 5)) for name, (nodes, *_) in PRINTED.items()}


def copied(evidence: Evidence) -> Finding:
    """Claim: the rows of other methods in Table 5 are those of ContraNorm's Table 3."""
    theirs, ours = evidence.published("contranorm_table3"), evidence.printed("table5")
    equal = {place: ours[place] == value for place, value in theirs.items()}
    others = [f"{b} {k} {c}" for (b, k, c), same in equal.items() if not same]
    text = f"{share(equal.values(), 'values')} are equal to the digit; not: {', '.join(others)}"
    return Finding(partly(equal.values()), text, "as printed")


def split(evidence: Evidence) -> Finding:
    """Claim: the accuracies without spread are shares of a test set of 20 % of the nodes."""
    spreads = evidence.spreads("contranorm_table3") | evidence.spreads("table5")
    values_of, cases, texts = evidence.published("table5"), [], []
    for name, sizes in FIFTH.items():
        values = {
            value
            for place, value in values_of.items()
            if place[0].lower() == name and spreads[place] == 0
        }
        fits = {value: any(_is_share(value, size) for size in sizes) for value in sorted(values)}
        cases += fits.values()
        shown = ", ".join(f"{value} {'yes' if fit else 'no'}" for value, fit in fits.items())
        texts.append(
            f"{name.capitalize()}, {sizes[0]} or {sizes[1]} nodes: {shown or 'no such cell'}"
        )
    text = f"a whole number of correct nodes for {share(cases, 'values')}: {'; '.join(texts)}"
    return Finding(every(cases), text, "as printed, one misprint corrected")


def _is_share(percent: float, size: int) -> bool:
    """Whether a whole number out of ``size`` gives this percentage, to two decimals."""
    return abs(100 * round(percent * size / 100) / size - percent) < 0.0051


def sizes(evidence: Evidence) -> Finding:
    """Compares numbers of nodes, edges, features and classes."""
    root, texts, cases = os.environ.get("DATA_ROOT", "data"), [], []
    for name, printed in PRINTED.items():
        if any(not Path(root, "graphs", folder).is_dir() for folder in folders(name)):
            raise NotRecordedError(f"{name} is not here; `make data DATA={name}` fetches it")
        graph = load(name, root=root)
        found = graph.num_nodes, _edges(graph, root), graph.x.shape[1], graph.num_classes
        for what, number, said in zip(("nodes", "edges", "features", "classes"), found, printed):
            cases.append(number == said)
            texts += [f"{name} has {number} {what} ({said})"] * (number != said)
    text = f"{share(cases, 'numbers')} are right; {', '.join(texts)}"
    return Finding(partly(cases), text, f"{len(PRINTED)} graphs")


def _edges(graph: Graph, root: str) -> int:
    """Counts edges as in the paper: node pairs in Cora and CiteSeer, file lines for others."""
    for folder in folders(graph.name):
        path = Path(root, "graphs", folder, "out1_graph_edges.txt")
        if path.exists():
            return len(path.read_text("utf-8").splitlines()) - 1
    return graph.edges.shape[1] // 2


_claim = partial(Claim, "Centered Self-Attention")
CLAIMS = [
    Claim(
        OWN,
        "centered_graphs_copied",
        "on Table 5 of Centered Self-Attention, which does not say it",
        "The rows of the other methods repeat ContraNorm's Table 3.",
        "The printed values of both.",
        copied,
        command="make table5",
    ),
    _claim(
        "centered_graphs_data",
        "4.3, the data",
        "The numbers of nodes, edges, features and classes of the four graphs.",
        "Counted in the files.",
        sizes,
        command="",
        cheap=False,
    ),
    _claim(
        "centered_graphs_split",
        "4.3",
        "The nodes are split 60/20/20 % into training, validation and test.",
        "Printed accuracies of ± 0.00, which networks have that collapsed to one class: with a "
        "test set of a fifth of the nodes they are k of these nodes, for a whole k. The paper "
        "cites Kipf and Welling for the split, whose split is the public one.",
        split,
        command="make table5",
    ),
]
