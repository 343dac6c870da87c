"""Claims about EM attention, external attention and the cost of units, computed on random tokens.

HEMNet (Song, Kim, Shim, AAAI 2021), 3.2 and 4; External Attention (Guo et al., 2021), from an
author's note; the cost of ContraNorm, counted; times from the record of the benchmarks.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from oversmoothing.aggregators.base import After
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.contranorm_d import ContraNormD
from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.external import External, Norm, normalised
from oversmoothing.aggregators.external_multihead import ExternalMultiHead
from oversmoothing.lab.backbones.t2t import T2TViT
from oversmoothing.lab.papers.claims.evidence import Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.rules import Finding, every, partly, share
from oversmoothing.lab.papers.hemnet_elbo import SPREADS, C, K, draw, draw_tokens

DRAWS = 20
UNITS: dict[str, dict[str, Any]] = {
    "EMANet": {},
    "HEM": {"step_size": 0.5, "temperature": "sqrt_dim", "l2": False},
}
LITTLE = 0.05  # share of the variance of X, or of the tokens
TOKENS, CHANNELS, SLOTS = 196, 64, 64  # of external attention
LARGE = 20.0  # factor on the features of one token
EAMLP = {14: 30, 19: 55}  # millions of parameters, in the README of VisionPermutator
LINEAR = 1.1  # largest exponent that counts as linear, as in the benchmarks
NAMES = {"em": "EMANet", "hem": "HEM"}


def explained(x: Tensor, gamma: Tensor, mu: Tensor) -> float:
    """Share of the variance of x that its reconstruction γμ explains."""
    rest = (x - gamma @ mu).square().sum()
    return float(1 - rest / (x - x.mean(dim=0)).square().sum())


def trials(*kinds: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Draws tokens of some kinds and random bases."""
    for spread in (SPREADS[kind] for kind in kinds):
        for seed in range(DRAWS):
            generator = torch.Generator().manual_seed(seed)
            yield draw_tokens(spread, generator), draw(K, C, generator=generator)


def kernels() -> Finding:
    """Claim: both kernels give nearly the same responsibilities and reconstructions."""
    agree, shifts = [], []
    for x, start in trials(*SPREADS):
        steps = []
        for kernel, temperature in (("dot", "sqrt_dim"), ("distance", C**0.5 / 2)):
            em = EM(C, K, step_size=0.5, temperature=temperature, l2=False, kernel=kernel).double()
            em.bases.copy_(start)
            steps.append(em.trace(x, 3)[-1])
        dot, distance = steps
        same = dot.gamma.argmax(-1) == distance.gamma.argmax(-1)
        agree.append(float(same.double().mean()))
        shifts.append(explained(x, distance.gamma, distance.mu) - explained(x, dot.gamma, dot.mu))
    little = [abs(s) < LITTLE and a > 1 - LITTLE for s, a in zip(shifts, agree)]
    text = f"same base for {100 * min(agree):.0f} to {100 * max(agree):.0f} % of the tokens; the "
    text += f"kernel of Eq. 7 explains {100 * min(shifts):+.0f} to {100 * max(shifts):+.0f} % more "
    text += f"of the variance; both differ by less than 5 % in {share(little, 'draws')}"
    return Finding(partly(little), text, f"{len(little)} draws")


def sharpening() -> Finding:
    """Claim: iterations make responsibilities sharper and reconstructions closer."""
    texts, cases = [], []
    for unit, options in UNITS.items():
        sharper, closer = [], []
        for x, start in trials("clusters", "distant clusters"):
            em = EM(C, K, **options).double()
            em.bases.copy_(start / start.norm(dim=-1, keepdim=True) if em.l2 else start)
            steps = em.trace(x, 3)
            entropy = [float(torch.special.entr(s.gamma).sum(-1).mean()) for s in steps]
            quality = [explained(x, s.gamma, s.mu) for s in steps]
            sharper.append(entropy[-1] < entropy[0])
            closer.append(quality[-1] > quality[0])
        texts.append(f"{unit}: sharper in {share(sharper, 'draws')}, closer in {share(closer)}")
        cases += sharper + closer
    return Finding(partly(cases), "; ".join(texts), f"{2 * DRAWS} draws")


def saturation() -> Finding:
    """Claim: the softmax saturates with σ² = 1 and does not with σ² = √C."""
    texts, cases = [], []
    for channels in (64, 256, 1024):
        generator = torch.Generator().manual_seed(channels)
        x, mu = draw(400, channels, generator=generator), draw(64, channels, generator=generator)
        peaks = [float((x @ mu.mT / v).softmax(-1).amax(-1).mean()) for v in (1, channels**0.5)]
        cases.append(peaks[0] > 0.5 > peaks[1])
        texts.append(f"{channels} channels: {peaks[0]:.2f} with σ² = 1, {peaks[1]:.2f} with √C")
    text = f"mean of the largest responsibility: {'; '.join(texts)}"
    return Finding(partly(cases), text, "400 tokens, 64 bases")


def n_steps(evidence: Evidence) -> Finding:
    """Claim: no N-step lowers the ELBO."""
    rows = evidence.json("elbo")["rows"]
    falls, steps = (sum(row[key] for row in rows) for key in ("n_falls", "n_steps"))
    text = f"{falls} of {steps:,} N-steps lower it"
    return Finding(every([falls == 0]), text, f"{steps:,} steps")


def e_steps(evidence: Evidence) -> Finding:
    """Judges HEM's own E-step, Eq. 8 with free norms, and gives the others beside it."""
    totals: dict[str, list[int]] = {}
    for row in evidence.json("elbo")["rows"]:
        counts = totals.setdefault(row["e_step"], [0] * 4)
        keys = ("e_falls", "e_steps", "iteration_falls", "iterations")
        totals[row["e_step"]] = [count + row[key] for count, key in zip(counts, keys)]
    falls, steps, *_ = next(counts for name, counts in totals.items() if "Eq. 8" in name)
    each = [f"{name}: {a} of {b:,} ({c} of {d:,})" for name, (a, b, c, d) in totals.items()]
    text = f"E-steps (whole iterations) that lower it: {'; '.join(each)}"
    return Finding(every([falls == 0]), text, f"{steps:,} steps each")


def external_draws() -> Iterator[tuple[Tensor, External]]:
    """Draws tokens and a unit of external attention, in float64."""
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        yield torch.randn(TOKENS, CHANNELS).double(), External(CHANNELS, SLOTS).double()


def evenness(attention: Tensor) -> Tensor:
    """Entropy of every token's attention over ln S: 1 if it is even, 0 if on one slot."""
    share = attention / attention.sum(dim=-1, keepdim=True).clamp(min=1e-30)
    return torch.special.entr(share).sum(dim=-1) / math.log(SLOTS)


def large_features() -> Finding:
    """Claim: the double norm keeps the attention of a very large token even, softmax does not."""
    norms: tuple[Norm, ...] = ("softmax", "double")
    large: dict[str, list[float]] = {norm: [] for norm in norms}
    rest: dict[str, list[float]] = {norm: [] for norm in norms}
    for x, unit in external_draws():
        x[0] *= LARGE
        for norm in norms:
            even = evenness(normalised(unit.key(x), norm).detach())
            large[norm].append(float(even[0]))
            rest[norm].append(float(even[1:].mean()))
    means = {norm: [sum(of[norm]) / DRAWS for of in (large, rest)] for norm in norms}
    each = [f"{norm}: {a:.2f}, of the other tokens {b:.2f}" for norm, (a, b) in means.items()]
    cases = [b > 2 * a for a, b in zip(large["softmax"], large["double"])]
    text = f"evenness of its attention {'; '.join(each)}"
    return Finding(partly(cases), text, f"{DRAWS} draws")


def two_layers() -> Finding:
    """Claim: the unit is two linear layers with a norm between, and heads share the memories."""
    errors, shared = [], []
    for x, unit in external_draws():
        weights = (x @ unit.key.weight.mT).softmax(dim=0)
        weights = weights / weights.sum(dim=1, keepdim=True)
        errors.append(float((unit(x) - weights @ unit.value.weight.mT).detach().abs().max()))
    for heads in (1, 2, 4):
        several = ExternalMultiHead(CHANNELS, num_heads=heads, num_slots=SLOTS)
        memories = several.key.weight.numel() + several.value.weight.numel()
        shared.append(memories == 2 * SLOTS * CHANNELS // heads)
    text = f"largest difference {max(errors):.0e}; one pair of memories for all heads"
    return Finding(every([max(errors) < 1e-6, *shared]), text, f"{DRAWS} draws")


def eamlp_parameters() -> Finding:
    """Claim: EAMLP-14 and 19 have as many parameters as listed."""
    counted = {}
    for number in EAMLP:
        network = T2TViT([ExternalMultiHead], name=f"t2t_vit_{number}")
        both = nn.ModuleList([network, nn.Linear(network.dim, 1000)])
        counted[number] = sum(p.numel() for p in both.parameters()) / 1e6
    text = ", ".join(f"EAMLP-{k} {v:.2f} M ({EAMLP[k]} M)" for k, v in counted.items())
    cases = [abs(v - EAMLP[k]) < 1 for k, v in counted.items()]
    return Finding(every(cases), f"counted (listed): {text}", "2 networks")


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of a line through the logarithms: k for costs that grow as sizes to the k."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def operations(layer: After, n: int, d: int) -> int:
    """FLOPs of a forward pass over n tokens of d channels."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(torch.randn(1, n, d, generator=torch.Generator().manual_seed(0)))
    return counter.get_total_flops()


def contranorm_cost() -> Finding:
    """Claim: ContraNorm takes O(n²d) operations and ContraNorm-D O(nd²)."""
    tokens, channels = (512, 1024, 2048, 4096), (32, 64, 128, 256)
    kinds = {"ContraNorm": (partial(ContraNorm, dual=True), (2, 1)),
             "ContraNorm-D": (ContraNormD, (1, 2))}  # fmt: skip
    texts, cases = [], []
    for name, (kind, powers) in kinds.items():
        by_n = exponent(tokens, [operations(kind(64), n, 64) for n in tokens])
        by_d = exponent(channels, [operations(kind(d), 1024, d) for d in channels])
        cases += [math.isclose(a, b, abs_tol=0.05) for a, b in zip((by_n, by_d), powers)]
        texts.append(f"{name} n^{by_n:.2f} d^{by_d:.2f}")
    return Finding(every(cases), f"operations grow as {', '.join(texts)}", "counted, 8 sizes each")


def bench(evidence: Evidence, work: str, measure: str) -> float:
    """Returns the median in a row of the benchmark of EM and external attention.

    Raises:
        NotRecordedError: there is none.
    """
    every = evidence.csv("bench/images.csv", "make bench")
    rows = [row for row in every if (row["case"], row["place"]) == ("em", "cpu")]
    found = [row for row in rows if row["work"].startswith(work) and row["measure"] == measure]
    if not found:
        raise NotRecordedError(f"{work}, {measure}: not measured; `make bench` does it")
    return float(found[0]["ours"])


def linear_time(evidence: Evidence, units: Sequence[str]) -> Finding:
    """Claim: the time of these units is linear in the number of tokens."""
    found = {unit: bench(evidence, f"{unit},", "exponent of ms") for unit in units}
    text = ", ".join(f"{NAMES.get(unit, unit)} {value:.2f}" for unit, value in found.items())
    text = f"exponent of time over the number of tokens: {text}"
    return Finding(every(v <= LINEAR for v in found.values()), text, "1,024 to 16,384 tokens")


def cheaper(evidence: Evidence) -> Finding:
    """Claim: EM attention takes less time than self-attention."""
    attention = bench(evidence, "attention, 4,096 tokens", "ms")
    shares = {unit: bench(evidence, f"{unit}, 16,384 tokens", "ms") / attention for unit in NAMES}
    text = ", ".join(f"{NAMES[unit]} {100 * share:.0f} %" for unit, share in shares.items())
    text = f"time for 16,384 tokens, as a share of fused self-attention's for only 4,096: {text}"
    faster = every(share < 1 for share in shares.values())
    return Finding(faster, text, "2 rounds, forward, backward")
