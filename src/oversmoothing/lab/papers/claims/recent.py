"""Claims on oversmoothing since 2024, on random and small graph and attention networks.

- The Oversmoothing Fallacy (Park et al., 2025, arXiv:2506.04653)
- Backward Oversmoothing (Keriven, 2025, arXiv:2505.16736)
- Graph Neural Networks Do Not Always Oversmooth (Epping et al., NeurIPS 2024, arXiv:2406.02269)
- Residual Connections and Normalization Can Provably Prevent Oversmoothing in GNNs (Scholkemper et
  al., ICLR 2025, arXiv:2406.02997)
- Mind the Gap (Nait Saada, Naderi, Tanner, ICML 2025)
- Are We Measuring Oversmoothing in Graph Neural Networks Correctly? (Zhang et al., 2025,
  arXiv:2502.04591)

``deep_gcns.py`` and ``measures.py`` measure the networks of the claims that read their files.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from statistics import fmean, stdev

import torch
from scipy.stats import fisher_exact, spearmanr
from torch import Tensor
from torch.nn.functional import one_hot

from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.rules import (
    Finding,
    above_rounding,
    every,
    judged,
    share,
    tendency,
)
from oversmoothing.lab.papers.claims.theory import attention, normal
from oversmoothing.lab.papers.deep_gcns import GRAPH
from oversmoothing.lab.papers.measures import (
    MEASURES,
    Row,
    by_method,
    in_gcn,
    load,
    panels_of,
    spearman,
)
from oversmoothing.lab.report.verdict import SIGNIFICANCE, paired
from oversmoothing.metrics.smoothness import mean_share, stable_rank

SEEDS, FEW, LAYERS, WIDTH = 10, 5, 32, 64
VARIANCES = (1, 4, 16, 64)
SCALES: dict[str, Callable[[], float]] = {  # deviation of a weight times √C, C = WIDTH
    "U(±1/√C)": lambda: 3**-0.5,
    "Glorot": lambda: 1.0,
    "He": lambda: 2**0.5,
}


@cache
def graphs() -> list[Graph]:
    """Generated graphs of 300 nodes in 3 classes, 10 neighbours each."""
    options = GRAPH | {"homophily": 0.6}  # mixes faster than that of the trained networks
    return [generate(**options, seed=seed) for seed in range(SEEDS)]


def adjacency(graph: Graph, kind: str) -> Tensor:
    """Returns D⁻¹(A + I), D^-½(A + I)D^-½, A + I, I, or I − 0.9 (D − A)/max D of Epping et al."""
    N = len(graph.y)
    eye = torch.eye(N, dtype=torch.float64)
    a = torch.zeros_like(eye).index_put(tuple(graph.edges), torch.ones((), dtype=torch.float64))
    degree = a.sum(dim=1)
    match kind:
        case "none":
            return eye
        case "doubly stochastic":
            return eye - 0.9 * (degree.diag() - a) / degree.max()
        case "sum":
            return a + eye
        case "row":
            return (a + eye) / (degree + 1)[:, None]
        case _:
            return (a + eye) / ((degree + 1)[:, None] * (degree + 1)).sqrt()


def features(graph: Graph) -> Tensor:
    return graph.x.to_dense().double()


def text_of(values: list[float], form: str = ".2f") -> str:
    """``mean ± std``."""
    return f"{fmean(values):{form}} ± {stdev(values):{form}}"


# Vanishing gradients


def random_gcn(graph: Graph, kind: str, scale: float, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Returns X_l and ∂loss/∂X_l, l = 1 … LAYERS, of a GCN with random normal weights and ReLU.

    The loss is the cross-entropy of the training nodes.
    """
    generator = torch.Generator().manual_seed(seed)
    mix, x, outputs = adjacency(graph, kind), features(graph), []
    for _ in range(LAYERS):
        weight = scale * normal(x.shape[1], WIDTH, generator) / WIDTH**0.5
        x = (mix @ x @ weight).relu().requires_grad_()
        outputs.append(x)
    logits = mix @ x @ normal(WIDTH, graph.num_classes, generator) / WIDTH**0.5
    loss = torch.nn.functional.cross_entropy(logits[graph.train], graph.y[graph.train])
    return [*zip((own.detach() for own in outputs), torch.autograd.grad(loss, outputs))]


def vanishing_without_aggregation() -> Finding:
    """Claim: deep networks also lose most of their gradient without aggregation."""
    lost: dict[tuple[str, str], dict[int, float]] = {}
    for (name, scale), kind in ((s, k) for s in SCALES.items() for k in ("row", "none")):
        for seed, graph in enumerate(graphs()):
            layers = random_gcn(graph, kind, scale(), seed)
            first, last = (layers[i][1].norm() for i in (0, -1))
            lost.setdefault((name, kind), {})[seed] = float((last / first).log10())
    halves = {name: {s: v / 2 for s, v in lost[name, "row"].items()} for name in SCALES}
    cases = judged(paired(lost[name, "none"], halves[name]) for name in SCALES)
    each = (
        f"{name} {text_of([*lost[name, 'row'].values()], '.1f')} with and "
        f"{text_of([*lost[name, 'none'].values()], '.1f')} without Ã"
        for name in SCALES
    )
    text = f"more than half is lost without Ã in {share(cases, 'initial weights')}; powers of ten "
    return Finding(
        tendency(cases), f"{text}lost over {LAYERS} layers: {'; '.join(each)}", f"{SEEDS} seeds"
    )


def backward_smoothing() -> Finding:
    """Claim: the gradients of all nodes become alike towards the first layer."""
    texts, found = [], []
    for kind in ("row", "symmetric"):
        first, last = {}, {}
        for seed, graph in enumerate(graphs()):
            layers = random_gcn(graph, kind, 2**0.5, seed)
            first[seed], last[seed] = (float(stable_rank(layers[i][1])) for i in (0, -1))
        found.append(paired(last, first))
        ends = (text_of([*own.values()]) for own in (last, first))
        texts.append(f"{kind} {' → '.join(ends)}")
    cases = judged(found)
    text = f"it falls in {share(cases, 'adjacencies')}; last layer → first: {'; '.join(texts)}"
    return Finding(tendency(cases), text, f"{SEEDS} seeds")


# A phase without oversmoothing


def spreads(graph: Graph, kind: str, variance: float, activation: str, seed: int) -> list[float]:
    """Returns 1 − mean_share of the nodes of a random GCN, after 32 and 64 layers."""
    generator = torch.Generator().manual_seed(seed)
    act = {"erf": torch.erf, "ReLU": torch.relu}[activation]
    mix, x, found = adjacency(graph, kind), features(graph), []
    for layer in range(64):
        scale = (variance / x.shape[1]) ** 0.5
        x = act(mix @ x @ (scale * normal(x.shape[1], 2 * WIDTH, generator)))
        if layer in (31, 63):
            found.append(float(1 - mean_share(x)))
    return found


def phase(activation: str) -> Finding:
    """Claim: nodes stay apart at a large variance of the weights, and not at a small one.

    They stay apart if another 32 layers keep half of their distance.
    """
    texts, cases = [], []
    for kind in ("row", "doubly stochastic"):
        ends = {}
        for variance in VARIANCES:
            pairs = [
                spreads(g, kind, variance, activation, s) for s, g in enumerate(graphs()[:FEW])
            ]
            ends[variance] = fmean(deep for _, deep in pairs)
            apart = [deep > before / 2 and deep > 1e-6 for before, deep in pairs]
            if variance in (VARIANCES[0], VARIANCES[-1]):
                cases += [own == (variance == VARIANCES[-1]) for own in apart]
        shown = (above_rounding(end) for end in ends.values())
        texts.append(f"{kind} {', '.join(shown)}")
    text = f"as claimed in {share(cases, 'networks')}; spread after 64 layers at σ² = "
    text += f"{', '.join(map(str, VARIANCES))}: {'; '.join(texts)}"
    return Finding(every(cases), text, f"{FEW} seeds")


# Gradients against smoothness


def gradients_or_smoothness(evidence: Evidence) -> Finding:
    """Claim: the accuracy follows the gradient before training more than the smoothness.

    Spearman's correlation over initial weights and depths, for each seed.
    """
    lines = [line for line in _trained(evidence) if line["norm"] == "none"]
    found: dict[str, dict[int, float]] = {"gradient": {}, "spread": {}}
    for seed in {int(line["seed"]) for line in lines}:
        own = [line for line in lines if int(line["seed"]) == seed]
        accuracy = [float(line["test_accuracy"]) for line in own]
        for measure, of_seed in found.items():
            of_seed[seed] = float(spearmanr([float(x[measure]) for x in own], accuracy)[0])
    compared = paired(found["gradient"], found["spread"])
    texts = [text_of([*of.values()]) for of in found.values()]
    text = f"Spearman's ρ with the accuracy: gradient {texts[0]}, smoothness {texts[1]}; "
    text += f"difference {compared.text}"
    he = [line for line in lines if line["init"] == "normal" and line["depth"] == "32"]
    names = ("gradient", "spread", "test_accuracy")
    ends = [fmean(float(line[name]) for line in he) for name in names]
    text += (
        f"; He, 32 layers: gradient {ends[0]:.1e}, 1 − mean share {ends[1]:.1e}, {ends[2]:.0f} %"
    )
    networks = len(lines) // compared.n
    return Finding(
        tendency(judged([compared])), text, f"{compared.n} seeds, {networks} networks each"
    )


# Which measure tells which network works

ALIKE = ("cosine", "mean_share", "output_cosine", "output_mean_share")  # higher: more alike


def follows(
    evidence: Evidence, measures: Sequence[str], layers: int, trained: int, gcn: bool = False
) -> Finding:
    """Claim: networks whose nodes are less alike, by these measures, are more accurate.

    Spearman's correlation over the methods of the study, at p < 0.05 divided by the number of
    correlations.

    Args:
        gcn: only the methods that act in the same GCN.
    """
    cells = _measured(evidence, layers, trained)
    cells = {key: in_gcn(own) if gcn else own for key, own in cells.items()}
    cases, texts = [], []
    for measure in measures:
        found = [spearman(own, measure) for own in cells.values()]
        sign = -1 if measure in ALIKE else 1
        number = len(cells) * len(measures)
        cases += [sign * rho > 0 if p < SIGNIFICANCE / number else None for rho, p, _ in found]
        each = ", ".join(f"{rho:.2f}".replace("-", "−") for rho, _, _ in found)
        texts.append(f"{MEASURES[measure]} {each}")
    where = ", ".join(graph for graph, *_ in cells)
    text = f"in {share(cases, 'correlations')}; Spearman's ρ on {where}: {'; '.join(texts)}"
    n = min(len(by_method(own)) for own in cells.values())
    return Finding(tendency(cases), text, f"{n} methods")


def collapsed(evidence: Evidence, rank: float) -> Finding:
    """Claim: trained networks that fail have a small effective rank more often than others.

    A network fails if it has less than half of the best accuracy. Fisher's exact test for each
    graph, at p < 0.05 divided by their number.
    """
    cells = _measured(evidence, layers=32, trained=1)
    cases, texts = [], []
    for (graph, *_), own in cells.items():
        (few, most), (low, others) = counts = _low_ranks(by_method(own).values(), rank)
        p = float(fisher_exact([[few, most - few], [low, others - low]])[1])
        more = few * others > low * most
        cases.append(more if p < SIGNIFICANCE / len(cells) else None)
        each = f"below {rank:g} in {few} of {most} that fail and {low} of {others} others"
        texts.append(f"{graph} {each}, p = {p:.2g}")
    return Finding(tendency(cases), "; ".join(texts), f"{sum(n for _, n in counts)} methods")


def _low_ranks(methods: Iterable[list[Row]], rank: float) -> list[tuple[int, int]]:
    """Counts low ranks and networks, of those that fail and of the others."""
    each = [
        (fmean(r.test_accuracy for r in own), fmean(r.value("effective_rank") for r in own) < rank)
        for own in methods
    ]
    half = max(accuracy for accuracy, _ in each) / 2
    groups = [[low for a, low in each if (a < half) == fails] for fails in (True, False)]
    return [(sum(group), len(group)) for group in groups]


def _measured(
    evidence: Evidence, layers: int, trained: int
) -> dict[tuple[str, int, int], list[Row]]:
    path = evidence.path("measures.csv", "oversmoothing figure measures --publish")
    every = panels_of(load(path)).items()
    cells = {key: own for key, own in every if key[1:] == (layers, trained)}
    if not cells:
        raise NotRecordedError(f"{path.name} has no such networks")
    return cells


def learned_centering(evidence: Evidence) -> Finding:
    """Claim: GraphNorm is better with a learned share of the mean than with all of it."""
    lines = [line for line in _trained(evidence) if line["norm"] != "none"]
    values: dict[tuple[str, str], dict[int, float]] = {}
    for line in lines:
        place = f"{line['graph']}, {line['adjacency']}, L = {line['depth']}", line["norm"]
        values.setdefault(place, {})[int(line["seed"])] = float(line["test_accuracy"])
    places = dict.fromkeys(place for place, _ in values)
    found = {place: paired(values[place, "learned"], values[place, "fixed"]) for place in places}
    cases = judged(found.values())
    each = "; ".join(f"{place} {of.text}" for place, of in found.items())
    text = f"better in {share(cases, 'cells')}: {each}"
    return Finding(tendency(cases), text, f"{min(of.n for of in found.values())} seeds or more")


def _trained(evidence: Evidence) -> list[dict[str, str]]:
    return evidence.csv("deep_gcns.csv", "oversmoothing figure deep_gcns --publish")


# Centering


def explained(basis: Tensor, y: Tensor) -> float:
    """Returns the share of the variance of the classes that a linear map of a basis explains."""
    labels = one_hot(y).double()
    labels = labels - labels.mean(dim=0)
    q, _ = torch.linalg.qr(basis - basis.mean(dim=0))
    return float((q.mT @ labels).norm().square() / labels.norm().square())


def leading(matrix: Tensor, k: int) -> Tensor:
    """Returns the k leading eigenvectors (N, k) of a matrix with real eigenvalues."""
    values, vectors = torch.linalg.eig(matrix)
    return vectors[:, values.abs().argsort(descending=True)[:k]].real


def uneven(graph: Graph, seed: int) -> Graph:
    """Keeps an edge with the product of the weights of its ends, 0.3 to 1, few of them large."""
    generator = torch.Generator().manual_seed(seed)
    weight = 0.3 + 0.7 * torch.rand(len(graph.y), generator=generator) ** 3
    i, j = graph.edges[:, graph.edges[0] < graph.edges[1]]
    kept = torch.rand(len(i), generator=generator) < weight[i] * weight[j]
    one_way = torch.stack([i[kept], j[kept]])
    return replace(graph, edges=torch.cat([one_way, one_way.flip(0)], dim=1))


def centering_distorts() -> Finding:
    """Claim: the limit of a linear GCN says less about the classes with plain centering.

    With a norm after each layer it is spanned by leading eigenvectors of Ã or of (I − 11ᵀ/n)Ã.
    """
    texts, found = [], []
    for kind in ("row", "symmetric", "sum"):
        plain, centered = {}, {}
        for seed in range(SEEDS):
            graph = uneven(generate(**GRAPH, degree=60.0, seed=seed), seed)
            mix, k = adjacency(graph, kind), graph.num_classes
            plain[seed] = 100 * explained(leading(mix, k)[:, 1:], graph.y)
            centered[seed] = 100 * explained(leading(mix - mix.mean(dim=0), k - 1), graph.y)
        found.append(paired(plain, centered))
        both = (text_of([*own.values()], ".1f") for own in (plain, centered))
        texts.append(f"{kind} {' and '.join(both)} %")
    cases = judged(found)
    text = f"less in {share(cases, 'mixings')}; without and with centering: {'; '.join(texts)}"
    return Finding(tendency(cases), text, f"{SEEDS} graphs")


# Attention maps of long contexts

CONTEXTS = (32, 512)


@cache
def attention_ranks() -> dict[tuple[int, float], dict[int, float]]:
    """Returns the stable rank after two layers of random attention by tokens, γ and seed.

    The n tokens are orthogonal, with n channels, and so are the weights of the values; there are no
    residual sums.
    """
    found: dict[tuple[int, float], dict[int, float]] = {}
    for n, gamma, seed in product(CONTEXTS, (0.0, -1.0), range(SEEDS)):
        generator = torch.Generator().manual_seed(seed)
        x = n**0.5 * torch.linalg.qr(normal(n, n, generator))[0]
        for _ in range(2):
            w_q, w_k, w_v = (normal(n, n, generator) / n**0.5 for _ in range(3))
            v = x @ torch.linalg.qr(w_v)[0]
            mixed = attention(x, w_q, w_k) @ v + gamma * v.mean(dim=0)
            x = mixed * n / mixed.norm()
        found.setdefault((n, gamma), {})[seed] = float(stable_rank(x))
    return found


def rank_collapse_in_width() -> Finding:
    """Claim: the stable rank falls as the context grows."""
    ranks = attention_ranks()
    found = [paired(ranks[CONTEXTS[0], 0.0], ranks[CONTEXTS[1], 0.0])]
    return Finding(tendency(judged(found)), _by_context(0.0), f"{SEEDS} seeds")


def outlier_removed() -> Finding:
    """Claim: without the outlier eigenvalue, γ = −1, the stable rank is higher."""
    ranks = attention_ranks()
    cases = judged(paired(ranks[n, -1.0], ranks[n, 0.0]) for n in CONTEXTS)
    text = f"higher in {share(cases, 'contexts')}; γ = 0: {_by_context(0.0)}; "
    return Finding(tendency(cases), text + f"γ = −1: {_by_context(-1.0)}", f"{SEEDS} seeds")


def _by_context(gamma: float) -> str:
    ranks = attention_ranks()
    each = (f"{text_of([*ranks[n, gamma].values()])} with {n:,} tokens" for n in CONTEXTS)
    return ", ".join(each)
