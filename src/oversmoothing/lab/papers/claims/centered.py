"""Claims of Centered Self-Attention (Ali et al.) that no rule of ``claims.yaml`` decides.

From Figure 1 (ranks of random transformers, 4.1), the printed Tables 1 to 4, and trainings on a
subset of VOC (4.2). Its graphs are in ``graphs.py``, its propositions in ``theory.py``.
"""

import math
from statistics import fmean, median

import numpy as np
from scipy.stats import spearmanr

from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.rules import (
    Finding,
    at_least_one,
    below,
    every,
    judged,
    partly,
    pooled,
    share,
    span,
    tendency,
)
from oversmoothing.lab.report.verdict import Comparison, compare, paired

HALF = 50  # of the 100 tokens of Figure 1
DEEPEST = 2000  # layers of Figure 1
SINGLE_STAGE = ("rrm", "1stage", "afa", "slrnet", "toco")  # rows of Table 1
Panel = tuple[str, str, str]  # block, weights, seed

# Figure 1


def ranks(evidence: Evidence, folder: str = "fig1") -> dict[Panel, dict[float, int]]:
    """Returns the rank after the last layer by panel and γ."""
    found: dict[Panel, dict[float, int]] = {}
    for line in evidence.csv(f"{folder}/fig1_rank.csv.gz"):  # by depth: the last of a γ stays
        by_gamma = found.setdefault((line["block"], line["weights"], line["seed"]), {})
        by_gamma[float(line["gamma"])] = int(line["rank"])
    return found


def effective_ranks(evidence: Evidence, folder: str) -> dict[Panel, dict[float, float]]:
    """Returns the effective rank after the last layer by panel, at γ = −1 and 0."""
    return {
        (line["block"], line["weights"], line["seed"]): {
            gamma: float(line[f"gamma={gamma}"]) for gamma in (-1, 0)
        }
        for line in evidence.csv(f"{folder}/fig1_effective_rank.csv.gz")
    }


def rank_1_above_minus_1(
    evidence: Evidence, kinds: tuple[str, ...] = (), folder: str = "fig1"
) -> Finding:
    """Claim: the rank falls to 1 for every γ > −1 and for no γ ≤ −1.

    A rank above 1 at γ > −1 does not decide the claim, since it may fall later.

    Args:
        kinds: of the weights; default: all.
    """
    panels = ranks(evidence, folder)
    panels = {p: of for p, of in panels.items() if not kinds or p[1].startswith((*kinds,))}
    low = {p: sum(g <= -1 and rank <= 1 for g, rank in of.items()) for p, of in panels.items()}
    high = {p: sum(g > -1 and rank > 1 for g, rank in of.items()) for p, of in panels.items()}
    fell = {p: number for p, number in low.items() if number}
    stayed = {p: number for p, number in high.items() if number and p not in fell}
    cases = [False if p in fell else None if p in stayed else True for p in panels]
    text = f"true in {cases.count(True)} of {len(cases)} panels"
    if fell:
        text += f"; refuted in {len(fell)}, with rank 1 at γ ≤ −1: {_told(fell)}"
    if stayed:
        text += f"; undecided in {len(stayed)}, still above 1 at γ > −1: {_told(stayed)}"
    seeds = len({seed for *_, seed in panels})
    many = "one seed" if seeds == 1 else f"{seeds} seeds"
    verdict = tendency(cases, all_of_them=True)
    return Finding(verdict, text, f"{many}, 61 values of γ per panel, 2,000 layers")


def _told(counts: dict[Panel, int]) -> str:
    """Lists the panels with the range of their counts over the seeds."""
    by_panel: dict[str, list[int]] = {}
    for (block, weights, _), count in counts.items():
        by_panel.setdefault(f"{block} {weights}", []).append(count)
    return ", ".join(f"{panel} ({span(each)} γ)" for panel, each in by_panel.items())


def oversmoothing_resolved(evidence: Evidence) -> Finding:
    """Claim: the rank falls to 1 at γ = 0; at γ = −1 half of it and more is left."""
    panels = ranks(evidence).values()
    lost = [by_gamma[0.0] <= 1 or None for by_gamma in panels]
    kept = [by_gamma[-1.0] > 1 for by_gamma in panels]
    full = [by_gamma[-1.0] >= HALF for by_gamma in panels]
    text = (
        f"γ = 0: rank 1 in {share(lost, 'panels')}; γ = −1: rank above 1 in {share(kept)}, of "
        f"{HALF} and more in {share(full)}"
    )
    return Finding(tendency([*lost, *full]), text, "one seed per panel, 2,000 layers")


def other_offsets(evidence: Evidence) -> Finding:
    """Claim: another γ than −1 keeps at least the same rank."""
    cases, texts = [], []
    for (block, weights, _), by_gamma in ranks(evidence).items():
        rivals = [gamma for gamma in by_gamma if gamma != -1 and by_gamma[gamma] >= by_gamma[-1.0]]
        cases.append(bool(rivals))
        texts.append(f"{block} {weights}: rank {by_gamma[-1.0]} at −1, {len(rivals)} γ")
    text = f"another γ has at least the rank of −1 in {share(cases, 'panels')}: {'; '.join(texts)}"
    return Finding(at_least_one(cases), text, "61 values of γ, 2,000 layers")


def effective_rank_kept(evidence: Evidence) -> Finding:
    """Claim: at γ = −1 half of the full effective rank and more is left."""
    panels = {panel: both[-1] for panel, both in effective_ranks(evidence, "fig1").items()}
    cases = [value >= HALF for value in panels.values()]
    each = ", ".join(f"{block} {weights} {x:.1f}" for (block, weights, _), x in panels.items())
    text = f"of {HALF} and more in {share(cases, 'panels')}: {each}"
    return Finding(tendency(cases), text, "one seed per panel, 2,000 layers")


def effective_rank_without(evidence: Evidence) -> Finding:
    """Claim: without centering, half of the full effective rank and more is left."""
    panels, cases, texts = effective_ranks(evidence, "fig1_fan_in"), [], []
    for block in ("Pre-LN", "ResiDual"):
        own = [both for (name, *_), both in panels.items() if name == block]
        plain, centered = ([both[gamma] for both in own] for gamma in (0, -1))
        cases += [value >= HALF for value in plain]
        texts.append(f"{block} {span(plain, '.1f')} (γ = −1: {span(centered, '.1f')})")
    text = f"γ = 0: {', '.join(texts)}, of 100"
    return Finding(tendency(cases), text, "3 seeds, 2,000 layers")


def similar_depths(evidence: Evidence, ratio: float) -> Finding:
    """Claim: at γ = 0 the three blocks reach rank 1 at about the same depth, for all weights."""
    first: dict[str, dict[str, int]] = {}
    for line in evidence.csv("fig1/fig1_rank.csv.gz"):
        if float(line["gamma"]) == 0:
            depths = first.setdefault(line["weights"], {})
            if int(line["rank"]) <= 1:
                depths.setdefault(line["block"], int(line["depth_from"]))
    cases, texts = [], []
    for weights, depths in first.items():
        found = {block: depths.get(block) for block in ("Pre-LN", "Post-LN", "ResiDual")}
        known = [depth for depth in found.values() if depth is not None]
        ends = [*known, *[DEEPEST] * (len(known) < len(found))]
        cases.append(max(ends) <= ratio * min(ends))
        each = ", ".join(f"{b} {d or f'more than {DEEPEST:,}'}" for b, d in found.items())
        texts.append(f"{weights}: {each}")
    text = f"within a factor of {ratio:g} for {share(cases, 'weights')}: {'; '.join(texts)}"
    return Finding(partly(cases), text, "one seed, γ = 0")


# Tables 1 to 4, as printed


def ranking(evidence: Evidence) -> Finding:
    """Claim: in the printed table only one method, a multi-stage one, is above centering."""
    printed, labels = evidence.published("table1"), evidence.labels("table1")
    texts, cases = [], []
    for column in ("val", "test"):
        ours = printed["", "ours", column]
        above = [key for (_, key, c), value in printed.items() if c == column and value > ours]
        cases.append(len(above) == 1 and above[0] not in SINGLE_STAGE)
        names = ", ".join(labels[key] for key in above) or "none"
        texts.append(f"{column}: {names} above {ours}")
    return Finding(every(cases), "; ".join(texts), "one run each, as printed")


def means_of_classes(evidence: Evidence) -> Finding:
    """Claim: the printed mIoU is the mean over the printed classes."""
    printed, labels = evidence.published("table2"), evidence.labels("table2")
    texts, cases = [], []
    for row in ("1stage", "afa", "toco", "toco_21k", "ours"):
        mean = fmean(v for (_, key, c), v in printed.items() if key == row and c != "mIoU")
        cases.append(abs(mean - printed["", row, "mIoU"]) < 0.15)
        texts.append(f"{labels[row]} {mean:.2f} ({printed['', row, 'mIoU']})")
    text = f"mean of 21 classes (printed): {', '.join(texts)}"
    return Finding(every(cases), text, "as printed")


def pipeline(evidence: Evidence) -> Finding:
    """Claim: without centering the CAM is much worse, and the pipeline below the other methods."""
    ablation = evidence.published("table4")
    value = ablation["", "reg", "Seg."]
    plain, centered = (ablation["", row, "M"] for row in ("cls", "cls_centered"))
    printed, labels = evidence.published("table1"), evidence.labels("table1")
    others = {key: printed["", key, "val"] for key in SINGLE_STAGE}
    lower = [labels[key] for key, other in others.items() if other < value]
    text = f"CAM {plain} without the term, {centered} with it; the whole pipeline reaches {value} "
    text += f"without it, {len(lower)} of {len(others)} other single-stage methods of Table 1 are "
    text += f"below ({', '.join(lower)})"
    return Finding(partly([plain < centered, value < median(others.values())]), text, "as printed")


# Trainings on the subset of VOC


def auxiliary_loss(evidence: Evidence, within: float) -> Finding:
    """Claim: L_clsᵐ raises M by less than a point at γ = 0, and raises it at γ = −1."""
    cells = evidence.measured("wsss_ablation")
    plain, centered = (
        compare(cells["", f"aux{row}", "M"], cells["", f"cls{row}", "M"])
        for row in ("", "_centered")
    )
    text = f"M with L_clsᵐ against without: γ = 0 {plain.text}; γ = −1 {centered.text}"
    verdict = tendency([below(plain, within), *judged([centered])])
    return Finding(verdict, text, f"{plain.n} seeds")


def paradox(evidence: Evidence) -> Finding:
    """Claim: L_seg raises Mᵐ; centering and L_reg raise M and lower Mᵐ."""
    cells = evidence.measured("wsss_ablation")
    steps = {
        "γ = −1 with L_seg": ("seg_centered", "seg"),
        "γ = −1 with L_reg": ("reg_centered", "reg"),
        "L_reg": ("reg", "seg"),
    }
    found = {"L_seg, Mᵐ": compare(cells["", "seg", "Mᵐ"], cells["", "aux", "Mᵐ"])}
    for label, (a, b) in steps.items():
        for column in ("M", "Mᵐ"):
            found[f"{label}, {column}"] = compare(cells["", a, column], cells["", b, column])
    first, *rest = judged(found.values())
    cases = [first, *map(_opposite, rest[::2], rest[1::2])]
    text = "; ".join(f"{label}: {one.text}" for label, one in found.items())
    seeds = f"{found['L_seg, Mᵐ'].n} seeds"
    return Finding(tendency(cases), f"so in {share(cases, 'steps')}: {text}", seeds)


def _opposite(rises: bool | None, also: bool | None) -> bool | None:
    """Whether the first rises and the second falls; None if undecided."""
    if rises is False or also is True:
        return False
    return True if rises and also is False else None


def uniform_tokens(evidence: Evidence) -> Finding:
    """Claim: tokens after the last block are more alike than after the first one."""
    lines = evidence.csv("figures/wsss_tokens.csv", "make fig2")
    cases, texts = [], []
    for moment in ("before", "after"):
        place = ("without centering", moment, "cosine")
        values = [
            float(line["mean"])
            for line in lines
            if (line["label"], line["moment"], line["metric"]) == place
        ]
        cases.append(values[-1] > values[0])
        path = " → ".join(f"{v:.2f}" for v in (values[0], min(values), values[-1]))
        texts.append(f"{moment} training {path}")
    text = f"mean cosine after the first block, the lowest, after the last: {'; '.join(texts)}"
    return Finding(partly(cases), text, f"{lines[0]['seeds']} seeds")


def cam_and_cosine(evidence: Evidence) -> Finding:
    """Claim: CAMs are worse where tokens are more alike.

    The rank correlation over the seeds of one setting decides, after the setting's mean is
    subtracted: over settings γ and the blocks that have it can change both.
    """
    found = {}  # the run of a setting -> cosine and mIoU, by seed; tables share runs
    for table in ("wsss_gamma", "wsss_blocks", "wsss_tries"):
        cells = evidence.measured(table)
        for block, row, column in cells:
            if column == "CAM":
                both = [cells[block, row, name] for name in ("token cosine", "CAM")]
                found[both[1].run_id] = np.array([own.values for own in both])
    several = [own for own in found.values() if own.shape[1] > 1]
    means = np.stack([own.mean(axis=1) for own in found.values()], axis=1)
    within = np.concatenate([own - own.mean(axis=1, keepdims=True) for own in several], axis=1)
    over, inside = spearmanr(*means), spearmanr(*within)
    texts = [f"{own.statistic:.2f} (p = {own.pvalue:.2g})" for own in (over, inside)]
    text = (
        f"rank correlation of the last block's mean cosine and the CAM's mIoU: {texts[0]} over "
        f"settings, {texts[1]} over the seeds of a setting"
    )
    case = bool(inside.statistic < 0) if inside.pvalue < 0.05 else None
    n = f"{means.shape[1]} settings; {within.shape[1]} runs of {len(several)} settings"
    return Finding(tendency([case]), text, n)


def tokens_from_scratch(evidence: Evidence, measure: str, higher: bool) -> Finding:
    """Claim: trained with centering, a measure of the tokens is higher (or lower) than without.

    It is pooled over the depths.
    """
    cells = evidence.measured("cls_depth_tokens")
    pairs = {
        column: (cells[measure, "none", column], own)
        for (where, row, column), own in cells.items()
        if (where, row) == (measure, "full")
    }
    test = pooled(compare(own, base) for base, own in pairs.values())
    each = ", ".join(f"{depth} {a.mean:.3g} → {b.mean:.3g}" for depth, (a, b) in pairs.items())
    case = None if test.higher is None else test.higher is higher
    n = min(own.n for _, own in pairs.values())
    return Finding(tendency([case]), f"{measure} ({test.text}): {each}", f"{n} seeds per depth")


def tokens_put_in(evidence: Evidence) -> Finding:
    """Claim: the same where centering is put into weights that were trained without it."""
    cells = evidence.measured("wsss_gamma")
    cases, texts = [], []
    for column, sign in (("token cosine", -1), ("token rank", 1)):
        base = cells["", "none", column]
        for row, label in (("half", "γ = −0.5"), ("full", "γ = −1")):
            own = cells["", row, column]
            ends = (own, base) if sign > 0 else (base, own)
            cases.append(compare(*ends))
            texts.append(f"{label}, {column}: {base.mean:.3g} → {own.mean:.3g}")
    apart = judged(cases)
    text = f"tokens differ more in {share(apart, 'comparisons')}: {'; '.join(texts)}"
    return Finding(tendency(apart), text, f"{cells['', 'none', 'token rank'].n} seeds")


Curve = dict[float, float]  # iteration -> percent


def catching_up(evidence: Evidence) -> Finding:
    """Whether the difference to γ = 0 rises from the first to the last common evaluation."""
    table, metrics = "wsss_overnight", {"CAM": "val_cam_best_common_miou",
                                        "seg.": "val_seg_common_miou"}  # fmt: skip
    cells, labels = evidence.measured(table), evidence.labels(table)
    runs = {run["id"]: run["seeds"] for run in evidence.runs(table)}
    changes: list[Comparison] = []
    texts: list[str] = []
    for column, metric in metrics.items():
        base = _curves(runs[cells["", "none", column].run_id], metric)
        for row in dict.fromkeys(key for _, key, _ in cells if key != "none"):
            gaps = _differences(_curves(runs[cells["", row, column].run_id], metric), base)
            if gaps:
                ends = {seed: gap[max(gap)] for seed, gap in gaps.items()}
                starts = {seed: gap[min(gap)] for seed, gap in gaps.items()}
                changes.append(paired(ends, starts))
                steps = sorted(set.intersection(*map(set, gaps.values())))
                path = " ".join(f"{fmean(gap[s] for gap in gaps.values()):+.1f}" for s in steps)
                texts.append(f"{labels[row]}, {column}: {path}, change {changes[-1].text}")
    if not changes:
        raise NotRecordedError(
            f"{table}: no evaluation during the training is recorded; "
            f"`oversmoothing table {table}` runs it"
        )
    cases = judged(changes)
    text = f"rises in {share(cases, 'cases')}; points to γ = 0 from evaluation to "
    return Finding(tendency(cases), f"{text}evaluation: {'; '.join(texts)}", "n as given")


def _curves(seeds: dict[str, dict], metric: str) -> dict[str, Curve]:
    """Maps seeds to the metric by iteration; that of the trained network is at infinity."""
    found: dict[str, Curve] = {}
    for seed, result in seeds.items():
        points = {
            point["step"]: point[metric] for point in result.get("history", []) if metric in point
        }
        end = {math.inf: result[metric]} if points and metric in result else {}
        found[seed] = points | end
    return found


def _differences(ours: dict[str, Curve], base: dict[str, Curve]) -> dict[str, Curve]:
    """Maps seeds to the difference of two curves; leaves out those with less than two points."""
    found = {
        seed: {step: curve[step] - base[seed][step] for step in curve if step in base[seed]}
        for seed, curve in ours.items()
        if seed in base
    }
    return {seed: gap for seed, gap in found.items() if len(gap) > 1}
