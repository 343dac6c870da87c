"""HEMNet's claims about Figure 3 (Song, Kim, Shim, AAAI 2021, 5.2), checked by measurements."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from oversmoothing.lab.papers.hemnet_fig3.gradients import Profile

NEGLIGIBLE = 0.1  # ratio of the E-steps' gradient to the N-steps'
SIMILAR = 2.0  # ratio of the largest to the smallest total gradient


def numbers(step_size: float, profile: Profile) -> dict[str, float | int]:
    """Returns the numbers for the claims at one step size η.

    Returns:
        ``e_over_n``: ratio of the gradient through the E-steps to that through the N-steps;
        ``largest_e_step``; ``first_half``: share of the first half of the iterations in the
        N-steps' gradient; ``first_half_eq18``: the same share of Eq. 18's weights
        η (1 − η)^(T − t); ``peak``: iteration after which the ELBO is highest; ``n_falls``,
        ``e_falls``: share of the steps that lower the ELBO; ``total``.
    """
    n_steps, e_steps = profile["n_steps"], profile["e_steps"]
    T = len(n_steps)
    after = [pair[1] for pair in profile["elbo"]]
    return {
        "e_over_n": sum(e_steps) / sum(n_steps) if sum(n_steps) else math.nan,
        "largest_e_step": max(e_steps),
        "first_half": first_half(n_steps),
        "first_half_eq18": first_half([(1 - step_size) ** (T - t) for t in range(1, T + 1)]),
        "peak": after.index(max(after)) + 1,
        "n_falls": profile["n_falls"],
        "e_falls": profile["e_falls"],
        "total": profile["total"],
    }


def first_half(values: Sequence[float]) -> float:
    """Returns the share of the first half of the values in their sum."""
    total = sum(values)
    return sum(values[: len(values) // 2]) / total if total else math.nan


def claims(found: Mapping[float, Mapping[str, Any]]) -> dict[str, bool]:
    """Returns for each claim whether it holds.

    A claim that compares step sizes must hold for all neighbouring ones.

    Args:
        found: step size η -> ``numbers``.
    """
    rows = [found[step_size] for step_size in sorted(found)]
    pairs = list(zip(rows, rows[1:]))
    totals = [row["total"] for row in rows]
    return {
        "no N-step lowers the ELBO": all(row["n_falls"] == 0 for row in rows),
        "no E-step lowers the ELBO": all(row["e_falls"] == 0 for row in rows),
        "a smaller η makes the ELBO peak no earlier": all(a["peak"] >= b["peak"] for a, b in pairs),
        f"gradients of E-steps are below {NEGLIGIBLE:g} of those of N-steps": all(
            row["e_over_n"] < NEGLIGIBLE for row in rows
        ),
        "a smaller η gives the first half of the iterations a larger share": all(
            a["first_half"] > b["first_half"] for a, b in pairs
        ),
        f"total gradients differ by less than a factor {SIMILAR:g}": max(totals)
        < SIMILAR * min(totals),
    }
