"""HEMNet's claims about Figure 3: ELBO and gradients on real features (Song, Kim, Shim, 2021)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from oversmoothing.lab.papers.claims.claim import SMALL, Claim, Finding, every, partly, share
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.papers.hemnet_fig3.claims import NEGLIGIBLE

SMALL_GRADIENT = 1e-6  # the caption of Figure 3 says: of order 1e-7


def moments(evidence: Evidence) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Training step of Figure 3, and its numbers by rising η."""
    for moment, by_step in evidence.json("hem_fig3")["numbers"].items():
        yield moment, [by_step[eta] | {"eta": eta} for eta in sorted(by_step, key=float)]


def images(evidence: Evidence) -> str:
    """Number of images behind Figure 3, in words."""
    return f"{evidence.json('hem_fig3')['samples']} images"


def on_features(evidence: Evidence) -> Finding:
    """Claim: no E-step lowers the ELBO on real features."""
    texts, cases = [], []
    for moment, rows in moments(evidence):
        falls = [row["e_falls"] for row in rows]
        cases += [fall == 0 for fall in falls]
        texts.append(f"{100 * min(falls):.0f} to {100 * max(falls):.0f} % after {moment} steps")
    text = f"E-steps that lower it: {'; '.join(texts)}"
    return Finding(every(cases), text, f"{images(evidence)}, 5 values of η")


def slower(evidence: Evidence) -> Finding:
    """Claim: the ELBO takes no fewer iterations to its maximum with a smaller η."""
    cases, texts = [], []
    for moment, rows in moments(evidence):
        peaks = [row["peak"] for row in rows]
        cases += [a >= b for a, b in zip(peaks, peaks[1:])]
        texts.append(f"{', '.join(map(str, peaks))} after {moment} steps")
    text = f"iteration of the highest ELBO by rising η: {'; '.join(texts)}"
    return Finding(partly(cases), text, images(evidence))


def shares(evidence: Evidence) -> Finding:
    """Claim: early iterations have a larger share of the gradient with a smaller η."""
    cases, texts = [], []
    for moment, rows in moments(evidence):
        found = [row["first_half"] for row in rows]
        cases += [a > b for a, b in zip(found, found[1:])]
        texts.append(f"{', '.join(f'{100 * v:.1f}' for v in found)} % after {moment} steps")
    expected = ", ".join(f"{100 * row['first_half_eq18']:.2g}" for row in rows)
    text = f"share of the first half by rising η: {'; '.join(texts)}; Eq. 18: {expected} %; "
    text += f"it falls in {share(cases, 'steps of η')}"
    return Finding(partly(cases), text, images(evidence))


def negligible(evidence: Evidence) -> Finding:
    """Claim: the gradient through E-steps is negligible against that through N-steps."""
    ratios = [row["e_over_n"] for _, rows in moments(evidence) for row in rows]
    cases = [ratio < NEGLIGIBLE for ratio in ratios]
    text = (
        f"{100 * min(ratios):.0f} to {100 * max(ratios):.0f} % of the gradient through N-steps, "
        f"below {100 * NEGLIGIBLE:g} % in {share(cases, 'cases')}"
    )
    return Finding(every(cases), text, f"{images(evidence)}, 5 values of η at 3 moments")


def small(evidence: Evidence) -> Finding:
    """Claim: the largest gradient through an E-step is of order 1e-7."""
    sizes = [row["largest_e_step"] for _, rows in moments(evidence) for row in rows]
    cases = [size < SMALL_GRADIENT for size in sizes]
    text = f"{min(sizes):.0e} to {max(sizes):.0e}, below {SMALL_GRADIENT:g} in "
    text += share(cases, "cases")
    return Finding(partly(cases), text, f"{images(evidence)}, 5 values of η at 3 moments")


def totals(evidence: Evidence) -> Finding:
    """Compares total gradients: for some pair of steps η, the smaller η has no larger total."""
    ratios, lower = [], []
    for _, rows in moments(evidence):
        values = [row["total"] for row in sorted(rows, key=lambda row: row["eta"])]
        ratios.append(f"{max(values) / min(values):.2f}")
        lower += [smaller <= larger for smaller, larger in zip(values, values[1:])]
    text = (
        f"a smaller η has no larger total in {share(lower, 'steps of η')}; largest over smallest "
    )
    text += f"total: {', '.join(ratios)}"
    return Finding(every([any(lower)]), text, f"{images(evidence)}, 3 moments")


_claim = partial(Claim, "HEMNet", command="make figure NAME=hem_fig3", scale=SMALL)
CLAIMS = [
    _claim(
        "hem_elbo_features",
        "4.2",
        "HEM raises the ELBO with every step on real features.",
        "VOC subset, MobileNetV2, T = 12, at three moments of training.",
        on_features,
    ),
    _claim(
        "hem_fig3a",
        "Figure 3a",
        "A smaller η makes the ELBO converge more slowly.",
        "Features of the VOC subset, η from 0.1 to 1, judged by the iteration of the highest ELBO.",
        slower,
    ),
    _claim(
        "hem_fig3b",
        "Figure 3b, Eq. 18",
        "A smaller η gives early iterations a larger share of the gradient.",
        "Features of the VOC subset, η from 0.1 to 1.",
        shares,
    ),
    _claim(
        "hem_fig3c",
        "Figure 3c",
        "The gradient through E-steps is negligible against that through N-steps; Eq. 18 drops it.",
        "Features of the VOC subset, η from 0.1 to 1; a tenth and less counts as negligible.",
        negligible,
    ),
    _claim(
        "hem_fig3c_size",
        "Figure 3c, its caption",
        "The gradient through E-steps is of order 10⁻⁷.",
        "The same features; the size depends on the scale of loss and features.",
        small,
    ),
    _claim(
        "hem_fig3d",
        "Figure 3d",
        "A smaller η does not necessarily raise the total gradient.",
        "Features of the VOC subset, η from 0.1 to 1.",
        totals,
    ),
]
