"""What HEMNet says of Figure 3, held against measurements (Song, Kim, Shim, AAAI 2021, 5.2)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from oversmoothing.papers.em_gradients import Profile

NEGLIGIBLE = 0.1  # E-step's gradient over the N-step's
SIMILAR = 2.0  # largest over smallest total gradient


def numbers(step_size: float, profile: Profile) -> dict[str, float | int]:
    """What the claims are about, at one step size η and T iterations.

    Returns:
        ``e_over_n``: mean gradient through the E-steps over that through the N-steps;
        ``largest_e_step``; ``first_half``: share of the first half of the iterations in the
        N-steps' gradient, beside ``first_half_eq18``, that of Eq. 18's weights η (1 − η)^(T − t);
        ``peak``: iteration after which the ELBO is highest; ``n_falls``, ``e_falls``: share of
        steps that lower it; ``total``.
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
    """Share of the first half of the iterations in the sum over all."""
    total = sum(values)
    return sum(values[: len(values) // 2]) / total if total else math.nan


def claims(found: Mapping[float, Mapping[str, Any]]) -> dict[str, bool]:
    """Claim -> whether it holds; what concerns several step sizes must hold from each to the next.

    Args:
        found: η -> ``numbers``.
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
