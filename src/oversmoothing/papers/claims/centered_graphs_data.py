"""Claims about the data and the sources of Table 5 of Centered Self-Attention Layers (4.3)."""

import os
from functools import partial
from pathlib import Path

from oversmoothing.papers.claims.claim import OWN, Claim, Finding, every, partly, share
from oversmoothing.papers.claims.evidence import Evidence, NotRecordedError, Place
from oversmoothing.report.verdict import Verdict as CellVerdict

PRINTED_CLASSES = {"chameleon": 6, "squirrel": 4}
GEOM_GCN = "Geom-GCN split"


def copied(evidence: Evidence) -> Finding:
    theirs, ours = evidence.published("contranorm_table3"), evidence.printed("table5")
    equal = {place: ours[place] == value for place, value in theirs.items()}
    others = [f"{b} {k} {c}" for (b, k, c), same in equal.items() if not same]
    text = f"{share(equal.values(), 'values')} are equal to the digit; not: {', '.join(others)}"
    return Finding(partly(equal.values()), text, "as printed")


def split(evidence: Evidence) -> Finding:
    """Counts the cells that fit, by graph, on Geom-GCN's split and on the public one."""
    public, read = evidence.verdicts("table5"), evidence.verdicts("table5_readings", GEOM_GCN)
    cases, texts = [], []
    for graph in ("Cora", "CiteSeer", "Chameleon", "Squirrel"):
        own = graph in ("Chameleon", "Squirrel")  # Table 5 runs on Geom-GCN's split there
        theirs = _fit(public if own else read, graph)
        cases.append(2 * sum(theirs) > len(theirs))
        texts.append(f"{graph}: {share(theirs, 'cells')} within")
        texts[-1] += "" if own else f" (public split: {share(_fit(public, graph))})"
    rows = f"vanilla, LayerNorm and centering, {evidence.measured('table5').seeds}"
    return Finding(partly(cases), "; ".join(texts), rows)


def _fit(verdicts: dict[Place, str], graph: str) -> list[bool]:
    return [
        word == CellVerdict.WITHIN
        for (block, key, _), word in verdicts.items()
        if block == graph and key in ("vanilla", "layernorm", "centered")
        and word in ("within", "off", "contradicted")
    ]  # fmt: skip


def classes(evidence: Evidence) -> Finding:
    found = {}
    for name, printed in PRINTED_CLASSES.items():
        folder = Path(os.environ.get("DATA_ROOT", "data")) / "graphs/WikipediaNetwork" / name
        path = folder / "geom_gcn/raw/out1_node_feature_label.txt"
        if not path.exists():
            raise NotRecordedError(f"{name} is not here; `make data DATA={name}` fetches it")
        lines = path.read_text("utf-8").splitlines()[1:]
        found[name] = (len({line.split("\t")[2] for line in lines}), printed)
    text = "; ".join(f"{name}: {number} in the files" for name, (number, _) in found.items())
    return Finding(every(a == b for a, b in found.values()), text, "all nodes of 2 graphs")


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
        "Chameleon has 6 classes and Squirrel 4.",
        "The labels in the files of Geom-GCN.",
        classes,
        command="",
        cheap=False,
    ),
    _claim(
        "centered_graphs_split",
        "4.3",
        "The nodes are split 60/20/20 % into training, validation and test.",
        "Table 5 on Geom-GCN's split, which its paper calls 60/20/20 and which has 48/32/20 % "
        "(more than half of a graph's cells within counts as that split). True 60/20/20 was not "
        "run.",
        split,
        command="make table NAME=table5_readings",
    ),
]
