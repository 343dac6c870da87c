"""HEMNet's claims about single E- and N-steps (Song, Kim, Shim, AAAI 2021, 4 and 5.2)."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from oversmoothing.aggregators.em import EM
from oversmoothing.lab.papers.claims.claim import OWN, Claim, Finding, every, partly, share
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.papers.hemnet_elbo import SPREADS, C, K, draw, draw_tokens

DRAWS = 20
UNITS: dict[str, dict[str, Any]] = {
    "EMANet": {},
    "HEM": {"step_size": 0.5, "temperature": "sqrt_dim", "l2": False},
}
LITTLE = 0.05  # share of the variance of X, or of the tokens


def newton_steps(evidence: Evidence) -> Finding:
    """Claim: no N-step lowers the ELBO."""
    rows = evidence.json("elbo")["rows"]
    falls, steps = (sum(row[key] for row in rows) for key in ("n_falls", "n_steps"))
    return Finding(
        every([falls == 0]), f"{falls} of {steps:,} N-steps lower it", f"{steps:,} steps"
    )


def expectation_steps(evidence: Evidence) -> Finding:
    """Judges HEM's own E-step, Eq. 8 with free norms, and gives the others beside it."""
    totals: dict[str, list[int]] = {}
    for row in evidence.json("elbo")["rows"]:
        counts = totals.setdefault(row["e_step"], [0, 0])
        counts[0], counts[1] = counts[0] + row["e_falls"], counts[1] + row["e_steps"]
    falls, steps = next(counts for name, counts in totals.items() if "Eq. 8" in name)
    each = [f"{name}: {a} of {b:,}" for name, (a, b) in totals.items()]
    text = f"E-steps that lower it: {'; '.join(each)}"
    return Finding(every([falls == 0]), text, f"{steps:,} steps each")


def _em(kernel: Any, start: Tensor, temperature: Any) -> EM:
    em = EM(C, K, step_size=0.5, temperature=temperature, l2=False, kernel=kernel)
    em.double().bases.copy_(start)
    return em


def explained(x: Tensor, gamma: Tensor, mu: Tensor) -> float:
    """Share of the variance of x that its reconstruction γμ explains."""
    rest = (x - gamma @ mu).square().sum()
    return float(1 - rest / (x - x.mean(dim=0)).square().sum())


def trials(kinds: Sequence[str] = tuple(SPREADS)) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens of some kinds and random bases."""
    for spread in (SPREADS[kind] for kind in kinds):
        for seed in range(DRAWS):
            generator = torch.Generator().manual_seed(seed)
            yield draw_tokens(spread, generator), draw(K, C, generator=generator)


def kernels(evidence: Evidence) -> Finding:
    """Claim: both kernels give nearly the same responsibilities and reconstructions."""
    agree, shifts = [], []
    for x, start in trials():
        both = _em("dot", start, "sqrt_dim"), _em("distance", start, C**0.5 / 2)
        dot, distance = (em.trace(x, 3)[-1] for em in both)
        same = dot.gamma.argmax(-1) == distance.gamma.argmax(-1)
        agree.append(float(same.double().mean()))
        shifts.append(explained(x, distance.gamma, distance.mu) - explained(x, dot.gamma, dot.mu))
    little = [abs(s) < LITTLE and a > 1 - LITTLE for s, a in zip(shifts, agree)]
    text = f"same base for {100 * min(agree):.0f} to {100 * max(agree):.0f} % of the tokens; the "
    text += f"kernel of Eq. 7 explains {100 * min(shifts):+.0f} to {100 * max(shifts):+.0f} % more "
    text += f"of the variance; both differ by less than 5 % in {share(little, 'draws')}"
    return Finding(partly(little), text, f"{len(little)} draws")


def sharpening(evidence: Evidence) -> Finding:
    """Claim: iterations make responsibilities sharper and reconstructions closer."""
    texts, cases = [], []
    for unit, options in UNITS.items():
        sharper, closer = [], []
        for x, start in trials(kinds=("clusters", "distant clusters")):
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


def saturation(evidence: Evidence) -> Finding:
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


_claim = partial(Claim, "HEMNet", command="make figure NAME=elbo")
_small = partial(Claim, "HEMNet", cheap=False)
CLAIMS = [
    _claim(
        "hem_prop1",
        "Proposition 1",
        "An N-step with η in (0, 1] raises the ELBO.",
        "EM on random tokens in float64.",
        newton_steps,
    ),
    _claim(
        "hem_elbo",
        "4.2",
        "HEM raises the ELBO with every step.",
        "E-steps of the same runs.",
        expectation_steps,
    ),
    Claim(
        OWN,
        "hem_kernel",
        "on 3.2 of HEMNet, which says it of the overall results",
        "The kernel of Eq. 7 or the dot product of Eq. 8 makes little difference to "
        "responsibilities and reconstructions.",
        "Three iterations with η = 0.5, σ² = √C and free norms on noise and clusters.",
        kernels,
        cheap=False,
    ),
    _small(
        "hem_fig4",
        "Figure 4",
        "With every iteration the attention maps become sharper and reconstructions closer.",
        "Entropy of the responsibilities and explained variance after iterations 1 and 3, on "
        "clustered tokens with random bases; on an image of VOC: `make figure NAME=hem_fig4`.",
        sharpening,
    ),
    _small(
        "hem_saturation",
        "4.1",
        "Without σ² = √C the softmax saturates as C grows.",
        "Normal tokens and bases.",
        saturation,
    ),
]
