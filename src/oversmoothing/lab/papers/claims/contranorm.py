"""Claims of ContraNorm (Guo et al., ICLR 2023) on transformers that no rule decides.

Attention maps, ranks and accuracy by layer and depth (Figures 2 and 3), parameters, and its parts
(Table 4, B.2, B.3). Its graphs are in ``contranorm_graphs.py``, its propositions in ``theory.py``.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from statistics import fmean

from scipy.stats import spearmanr

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.rules import (
    Finding,
    Pooled,
    above,
    below,
    every,
    higher_in,
    judged,
    partly,
    pooled,
    share,
    tendency,
    weakest,
)
from oversmoothing.lab.report.verdict import Measured, compare
from oversmoothing.lab.store.identity import short_name

ALIKE, APART = 0.8, 0.5  # similarity of attention maps from here, of features up to there
BERT, DEIT = "small BERT, 12 layers", "DeiT-Ti, pretrained"
FALL = 5  # points of accuracy
NETWORKS = {
    "GCN, 2 layers, 1,000 nodes": "gcn",
    "DeiT-Ti": "deit_ti",
    "T2T-ViT-7": "t2t_vit_7",
    "BERT, 2 layers of 128": "bert_small",
}
TABLES = {"text_rates": "BERT", "text_depth_tokens": "BERT", "cls_depth_tokens": "ViT on digits"}
POSITIONS = ("input", "context", "projection", "attention_norm", "ffn", "ffn_sum", "output")
Layers = dict[str, list[float]]
Seeds = dict[int, Layers]
Ends = tuple[Measured, Measured]  # after the last layer, with ContraNorm and without

# Attention maps and singular values (Figure 2a to c)


def pretrained(evidence: Evidence) -> Layers:
    """Returns token and attention measures of the pretrained DeiT-Ti without an aggregator."""
    runs = evidence.runs("cls_pretrained")
    plain = [run for run in runs if short_name(run["config"]["aggregator"]) == "none"]
    return next(iter(plain[0]["seeds"].values()))["layers_before"]


def trained(evidence: Evidence, network: str) -> tuple[Layers, str]:
    """Returns measures of a network by layer, as means over seeds, and the number of seeds."""
    lines = evidence.csv("figures/contranorm_layers.csv", "oversmoothing figure layers")
    own = [line for line in lines if line["row"] == network]
    found: Layers = {}
    for line in own:
        found.setdefault(line["metric"], []).append(float(line["mean"]))
    return found, own[0]["seeds"]


def maps_of_vit(evidence: Evidence) -> Finding:
    """Claim: attention maps of a ViT are alike where its features are not."""
    cases, text = _alike(pretrained(evidence))
    return Finding(partly(cases), text, "64 images")


def maps_of_bert(evidence: Evidence) -> Finding:
    """Claim: attention maps of BERT are alike where its features are not."""
    layers, seeds = trained(evidence, BERT)
    cases, text = _alike(layers)
    text += f"; the maps of the first layer {layers['attention_similarity'][0]:.2f} already"
    return Finding(partly(cases), text, f"{seeds} seeds, 64 sentences")


def _alike(layers: Layers) -> tuple[list[bool], str]:
    """Whether attention maps are alike, and features are not, in each of the last four layers."""
    maps, cosines = (layers[name][-4:] for name in ("attention_similarity", "cosine"))
    text = f"last four layers: attention maps {min(maps):.2f} to {max(maps):.2f}, features "
    text += f"{min(cosines):.2f} to {max(cosines):.2f}"
    return [a >= ALIKE and b < APART for a, b in zip(maps, cosines)], text


def drawn_singular_values(evidence: Evidence) -> Finding:
    """Claim: most singular values of BERT's last layer are small, as drawn by the authors."""
    printed = evidence.published("contranorm_singular")
    counts = [[v for (_, k, _), v in printed.items() if k == row] for row in ("bert", "contranorm")]
    drawn, with_norm = (100 * bins[0] / sum(bins) for bins in counts)
    text = f"{drawn:.0f} % lie in bin 1 as drawn, with ContraNorm {with_norm:.0f} %"
    return Finding(every([drawn > 50]), text, "one text, as drawn")


def small_singular_values(evidence: Evidence) -> Finding:
    """Claim: most singular values of the last layer of two other networks are small."""
    cases, texts = [], []
    for name in (DEIT, BERT):
        layers, seeds = trained(evidence, name)
        near_zero, rank = (layers[metric][-1] for metric in ("near_zero", "effective_rank"))
        cases.append(near_zero > 0.5)
        texts.append(f"{name} {100 * near_zero:.0f} % (effective rank {rank:.1f})")
    text = f"below a tenth of the largest: {', '.join(texts)}"
    return Finding(partly(cases), text, f"{seeds} seeds of the small BERT")


# By depth (Figures 2d and 3)


def networks(evidence: Evidence) -> dict[tuple[str, int, float], dict[str, Seeds]]:
    """Returns measurements after training by network, layers and rate, then aggregator and seed."""
    found: dict[tuple[str, int, float], dict[str, Seeds]] = {}
    for table, name in TABLES.items():
        for run in evidence.runs(table):
            config = run["config"]
            if short_name(config["backbone"]) == "bert_prenorm":
                continue  # not the paper's BERT
            seeds = {int(seed): result["layers_after"] for seed, result in run["seeds"].items()}
            depth = len(next(iter(seeds.values()))["cosine"])
            by_aggregator = found.setdefault((name, depth, float(config["trainer"]["lr"])), {})
            by_aggregator.setdefault(short_name(config["aggregator"]), seeds)
    return dict(sorted(found.items()))


def beside(evidence: Evidence) -> Iterator[tuple[str, Seeds, Seeds]]:
    """Yields the name of a network, and its measurements with and without ContraNorm."""
    for (name, depth, rate), by_aggregator in networks(evidence).items():
        if {"contranorm", "none"} <= by_aggregator.keys():
            label = f"{name}, {depth} layers at {rate:g}"
            yield label, by_aggregator["contranorm"], by_aggregator["none"]


def _after_last(ours: Seeds, base: Seeds, metric: str) -> Ends:
    """Returns a measure after the last layer, of the seeds that have it."""
    found = []
    for seeds in (ours, base):
        values = {seed: layers[metric][-1] for seed, layers in seeds.items() if metric in layers}
        found.append(Measured((*values.values(),), "", 0.0, (*values,)))
    return found[0], found[1]


def _numbers(first: Measured, second: Measured) -> str:
    """``n = 3``, or ``n = 3 and 1`` if the two have different numbers of seeds."""
    return f"n = {first.n}" + f" and {second.n}" * (first.n != second.n)


def falling_rank(evidence: Evidence) -> Finding:
    """Claim: the effective rank falls with depth, by Spearman's ρ."""
    found = {"DeiT-Ti": pretrained(evidence)["effective_rank"]}
    for (name, depth, rate), by_aggregator in networks(evidence).items():
        if name == "BERT" and depth >= 12 and "none" in by_aggregator:
            seeds = (layers["effective_rank"] for layers in by_aggregator["none"].values())
            found[f"small BERT, {depth} layers at {rate:g}"] = [*map(fmean, zip(*seeds))]
    cases, texts = [], []
    for label, values in found.items():
        rho = spearmanr(range(len(values)), values).statistic
        cases.append(bool(rho < -0.9))
        texts.append(
            f"{label}: {values[0]:.1f} → {max(values):.1f} → {values[-1]:.1f} (ρ {rho:.2f})"
        )
    text = f"first, largest, last and Spearman's ρ with depth: {'; '.join(texts)}"
    return Finding(partly(cases), text, f"{len(cases)} networks")


def no_collapse(evidence: Evidence) -> Finding:
    """Claim: with ContraNorm the effective rank is higher and does not halve with depth.

    Pooled over the networks; halved: in all seeds of a network, not decided in some of them.
    """
    found = list(beside(evidence))
    last = [_after_last(ours, base, "effective_rank") for _, ours, base in found]
    test = pooled(compare(*ends) for ends in last)
    kept, texts = [], []
    for (label, seeds, _), (ours, base) in zip(found, last):
        ranks = [layers["effective_rank"] for layers in seeds.values()]
        halved = [rank[-1] <= rank[0] / 2 for rank in ranks]
        kept.append(None if len({*halved}) > 1 or ours.n < 2 else not halved[0])
        means = f"{fmean(rank[0] for rank in ranks):.1f} → {ours.text}, without {base.text}"
        texts.append(f"{label}: {means} ({_numbers(ours, base)})")
    text = (
        f"effective rank after the last layer {_side(test)} ({test.text}), more than half of that "
        f"after the first in {share(kept, 'networks')}; first → last layer: {'; '.join(texts)}"
    )
    verdict = weakest([tendency([test.higher]), tendency(kept)])
    return Finding(verdict, text, "n as given")


def _side(test: Pooled) -> str:
    return {True: "higher", False: "lower", None: "not significantly different"}[test.higher]


def accuracy_by_depth(evidence: Evidence) -> Finding:
    """Claim: at 24 layers BERT loses accuracy without ContraNorm, and not with it.

    A rate at which it loses none without ContraNorm leaves nothing to prevent, and is only told.
    """
    cells, texts, cases = evidence.measured("text_rates"), [], []
    shallow = evidence.measured("text_depth")["", "none", "L=2"]
    level = Measured(tuple(value - FALL for value in shallow.values), "", 0.0, shallow.seeds)
    for rate in ("5e-4", "1e-4"):
        base, ours = (cells["accuracy", key, f"L=24, {rate}"] for key in ("none", "contranorm"))
        fell, kept = above(level, base, 4), above(ours, level, 4)
        if fell is not False:
            cases.append(False if kept is False else fell and kept)
        means = f"{ours.text} % with ContraNorm, {base.text} % without"
        texts.append(f"at {rate} {means} ({_numbers(ours, base)})")
    text = f"24 layers: {'; '.join(texts)}; 2 layers at 5e-4: {shallow.mean:.1f} % "
    text += f"(n = {shallow.n})"
    return Finding(tendency(cases), text, "n as given")


def spread_in_deep_bert(evidence: Evidence) -> Finding:
    """Claim: ContraNorm raises the effective rank and variance of deep BERTs."""
    ranks, spreads = {}, {}
    for label, ours, base in beside(evidence):
        if label.startswith("BERT") and not label.startswith(("BERT, 2 ", "BERT, 6 ")):
            ranks[label] = _after_last(ours, base, "effective_rank")
            spread = _after_last(ours, base, "token_variance")
            if all(measured.n for measured in spread):  # older runs do not have it
                spreads[label] = spread
    rank, spread = (pooled(compare(*ends) for ends in of.values()) for of in (ranks, spreads))
    text = f"effective rank {_side(rank)} ({rank.text}): {_against(ranks)}; variance "
    text += f"{_side(spread)} ({spread.text}): {_against(spreads)}" if spreads else "not recorded"
    cases = [rank.higher, *[spread.higher] * bool(spreads)]
    return Finding(tendency(cases), text, "n as given")


def fine_tuned(evidence: Evidence) -> Finding:
    """Claim: after fine-tuning MiniLM, tokens of the last layer differ more with ContraNorm."""
    by_task: dict[str, dict[float, Seeds]] = {}
    for run in evidence.runs("glue_minilm"):
        scale = run["config"]["aggregator"].get("scale", 0)
        seeds = {int(seed): result["layers_after"] for seed, result in run["seeds"].items()}
        by_task.setdefault(run["config"]["data"]["task"], {})[scale] = seeds
    ranks, cosines = (
        {
            f"{task}, s = {scale:g}": _after_last(seeds, by_scale[0], metric)
            for task, by_scale in by_task.items()
            for scale, seeds in sorted(by_scale.items())
            if scale and 0 in by_scale
        }
        for metric in ("effective_rank", "cosine")
    )
    higher, lower = (judged(compare(*ends) for ends in of.values()) for of in (ranks, cosines))
    cases = [*higher, *(None if up is None else not up for up in lower)]
    text = f"as claimed in {share(cases, 'comparisons')}: effective rank: {_against(ranks)}, "
    return Finding(tendency(cases), f"{text}cosine: {_against(cosines)}", "n as given")


def _against(found: dict[str, Ends]) -> str:
    """``BERT, 12 layers at 0.0001: 21.31 ± 0.20 against 20.00 ± 0.10 (n = 3); …``"""
    return "; ".join(
        f"{label}: {a.text} against {b.text} ({_numbers(a, b)})" for label, (a, b) in found.items()
    )


# Its parts


def parameters() -> Finding:
    """Claim: ContraNorm adds less than 2 % parameters to a transformer or graph network.

    Raises:
        NotRecordedError: transformers is not installed.
    """
    if not find_spec("transformers"):
        raise NotRecordedError("BERT needs transformers; pip install '.[text]'")
    shares = {}
    for network, backbone in NETWORKS.items():
        plain = _number(backbone, "none")
        for form in ("contranorm", "contranorm_vit", "contranorm_bert", "contranorm_albert"):
            shares[f"{form} in {network}"] = _number(backbone, form) / plain - 1
    most = max(shares, key=lambda name: shares[name])
    text = f"at most {100 * shares[most]:.2g} % more parameters ({most})"
    return Finding(every(value < 0.02 for value in shares.values()), text, f"{len(shares)} cases")


def _number(backbone: str, aggregator: str) -> int:
    """Counts the parameters of a network with an aggregator."""
    config = compose_config([f"backbone={backbone}", f"aggregator={aggregator}"])
    given = {}
    if backbone == "gcn":
        graph = generate(num_nodes=1000)
        given = {"x": graph.x, "edges": graph.edges, "num_classes": 5, "seeds": [0]}
    elif "weights" in config.backbone:
        config.backbone.weights = "none"
    aggregators = [build(config.aggregator), NoAggregator]
    network = build(config.backbone)(aggregators=aggregators, **given)
    return sum(parameter.numel() for parameter in network.parameters())


def uniformity_loss(evidence: Evidence, within: float) -> Finding:
    """Compares weights of the uniformity loss with none: accuracy, effective rank, cosine."""
    cells, weights = evidence.measured("contranorm_loss"), ("0.01", "0.1", "1")
    gains = {
        column: {row: compare(cells["", row, column], cells["", "none", column]) for row in weights}
        for column in ("accuracy", "effective rank", "mean cosine")
    }
    ranks, cosines = (
        [higher_in(gain, 2 * len(weights)) for gain in gains[column].values()]
        for column in ("effective rank", "mean cosine")
    )
    cases = [below(gain, within) for gain in gains["accuracy"].values()]
    cases += [*(None if up is None else not up for up in ranks), *cosines]
    texts = [
        f"{column}: {', '.join(f'{row}: {gain.text}' for row, gain in by_weight.items())}"
        for column, by_weight in gains.items()
    ]
    n = cells["", "none", "accuracy"].n
    text = f"helps little in {share(cases, 'cases')}: against no such loss, {'; '.join(texts)}"
    return Finding(tendency(cases), text, f"{n} seeds per weight")


def positions(evidence: Evidence) -> Finding:
    """Claim: after attention and residual is better than every other position."""
    cells = evidence.measured("contranorm_positions")
    best = cells["", "attention_sum", "accuracy"]
    others = {row: cells["", row, "accuracy"] for row in POSITIONS}
    cases = [above(best, other, len(others)) for other in others.values()]
    means = ", ".join(f"{row} {cell.mean:.1f}" for row, cell in others.items())
    text = f"{best.mean:.1f} % there, above {share(cases, 'others')}: {means}"
    return Finding(tendency(cases, all_of_them=True), text, f"{best.n} seeds per position")
