"""Counts how often a step of EM attention lowers the ELBO; HEMNet claims that it raises it.

    oversmoothing figure elbo

For each E-step and step size, EM runs from random bases on three kinds of random tokens. Each step
is compared with the step before it.
"""

import itertools
import json
import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from oversmoothing.aggregators.em import EM
from oversmoothing.lab.launch.script import whole
from oversmoothing.lab.papers import figure_parser
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.store.files import write_text

N, C, K = 400, 16, 8
STEP_SIZES = (0.1, 0.5, 1.0)
SPREADS = {"noise": 0.0, "clusters": 1.0, "distant clusters": 2.0}  # std of the K centres
E_STEPS = {
    "dot product (HEMNet, Eq. 8)": {"kernel": "dot", "l2": False},
    "dot product, bases of norm 1": {"kernel": "dot", "l2": True},
    "distance, the posterior": {"kernel": "distance", "l2": False},
}
TOLERANCE = 1e-11  # relative to the ELBO: rounding in float64


def main(argv: list[str]) -> int:
    """Writes ``elbo.json`` and ``tables/elbo.md``."""
    parser = figure_parser(__doc__, pdf=False)
    parser.add_argument("--runs", type=whole(), default=20, help="draws of tokens and bases")
    parser.add_argument("--iterations", type=whole(2), default=20, help="of EM")
    options = parser.parse_args(argv)
    rows = [
        {"e_step": e_step, "step_size": step_size, "tokens": tokens}
        | measure(E_STEPS[e_step], step_size, SPREADS[tokens], options.runs, options.iterations)
        for e_step, step_size, tokens in itertools.product(E_STEPS, STEP_SIZES, SPREADS)
    ]
    sizes = {"runs": options.runs, "iterations": options.iterations, "N": N, "C": C, "K": K}
    content = {"command": "oversmoothing figure elbo", **sizes, "variance": C**0.5}
    text = json.dumps(content | {"rows": rows}, indent=1, ensure_ascii=False)
    page = options.target / "tables/elbo.md"
    write_text(options.target / "elbo.json", text + "\n")
    write_text(page, markdown(rows))
    print(markdown(rows), page, sep="\n")
    return 0


def measure(
    e_step: dict[str, Any], step_size: float, spread: float, runs: int, iterations: int
) -> dict[str, int | float]:
    """Counts the steps, and the iterations, that lower the ELBO; finds the deepest fall."""
    falls, of_iterations = [], []
    for seed in range(runs):
        generator = torch.Generator().manual_seed(seed)
        x, start = draw_tokens(spread, generator), draw(K, C, generator=generator)
        path = climb(x, start, step_size, e_step, iterations).flatten()  # E, N, E, N, …
        falls.append((path[:-1] - path[1:]) / path[1:].abs())
        of_iterations.append(
            (path[1:-2:2] - path[3::2]) / path[3::2].abs()
        )  # from N-step to N-step
    n_steps, e_steps = torch.stack(falls)[:, 0::2], torch.stack(falls)[:, 1::2]
    whole = torch.stack(of_iterations)
    deepest = e_steps.max().item()
    return {
        "n_steps": n_steps.numel(),
        "n_falls": int((n_steps > TOLERANCE).sum()),
        "e_steps": e_steps.numel(),
        "e_falls": int((e_steps > TOLERANCE).sum()),
        "iterations": whole.numel(),
        "iteration_falls": int((whole > TOLERANCE).sum()),
        "deepest_fall": float(f"{deepest:.3g}") if deepest > TOLERANCE else 0.0,
    }


def climb(
    x: Tensor, start: Tensor, step_size: float, e_step: dict[str, Any], iterations: int
) -> Tensor:
    """Returns the ELBO after each E- and N-step.

    Shapes: x (N, C), start (K, C) -> (iterations, 2).
    """
    em = EM(C, K, iterations, step_size=step_size, temperature="sqrt_dim", **e_step).double()
    em.bases.copy_(start / start.norm(dim=-1, keepdim=True) if e_step["l2"] else start)
    steps = zip(*[(step.before, step.gamma, step.mu) for step in em.trace(x)])
    return elbo_by_step(x, *steps, variance=em.variance)


def draw_tokens(spread: float, generator: torch.Generator) -> Tensor:
    """Draws tokens with unit noise around K centres. Shapes: -> (N, C)."""
    centres = spread * draw(K, C, generator=generator)
    return centres.repeat_interleave(N // K, dim=0) + draw(N, C, generator=generator)


def draw(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def markdown(rows: list[dict[str, Any]]) -> str:
    """Returns a line for each E-step and step size: all N-steps, E-steps by kind of tokens."""
    head = ["E-step", "η", "N-steps that lower the ELBO"]
    head += [f"E-steps: {tokens}" for tokens in SPREADS] + ["deepest fall"]
    lines = []
    for (e_step, step_size), group in itertools.groupby(rows, itemgetter("e_step", "step_size")):
        cells = list(group)
        line = [e_step, f"{step_size:g}"]
        line.append(f"{sum(c['n_falls'] for c in cells)} of {sum(c['n_steps'] for c in cells)}")
        line += [f"{cell['e_falls']} of {cell['e_steps']}" for cell in cells]
        deepest = max(cell["deepest_fall"] for cell in cells)
        lines.append([*line, f"{100 * deepest:.2g} %" if deepest else "none"])
    return table(head, lines) + "\n"


def elbo(x: Tensor, gamma: Tensor, mu: Tensor, variance: float) -> Tensor:
    """Σ_n Σ_k γ_nk (ln N(x_n | μ_k, σ²I) − ln γ_nk), without mixing coefficients; float64.

    If γ is the posterior, this is the log-likelihood ln p(X) of Eq. 2.

    Args:
        variance: σ².

    Shapes: x (..., N, C), gamma (..., N, K), mu (..., K, C) -> (...).
    """
    x, gamma, mu = x.double(), gamma.double(), mu.double()
    C = x.shape[-1]
    squares = x.square().sum(dim=-1)[..., :, None] + mu.square().sum(dim=-1)[..., None, :]
    distances = squares - 2 * x @ mu.mT
    log_density = -distances / (2 * variance) - C / 2 * math.log(2 * math.pi * variance)
    entropy = torch.special.entr(gamma)  # 0 at γ = 0
    return (gamma * log_density + entropy).sum(dim=(-2, -1))


def elbo_by_step(
    x: Tensor,
    before: Sequence[Tensor],
    gamma: Sequence[Tensor],
    mu: Sequence[Tensor],
    variance: float,
) -> Tensor:
    """ELBO after every E-step and after every N-step of T iterations.

    Args:
        before: T bases before the E-steps.
        gamma: T responsibilities, computed from ``before``.
        mu: T bases after the N-steps.
        variance: σ².

    Shapes: x (..., N, C), each before and mu (..., K, C), each gamma (..., N, K) -> (..., T, 2).
    """
    steps = [
        torch.stack([elbo(x, g, old, variance), elbo(x, g, new, variance)], dim=-1)
        for old, g, new in zip(before, gamma, mu, strict=True)
    ]
    return torch.stack(steps, dim=-2)
