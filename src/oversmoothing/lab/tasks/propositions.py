"""Propositions 1 and 2 of Centered Self-Attention Layers (Ali et al., Sec. 3.1), numerically.

Both are about ``X ← softmax(X W_Q (X W_K)ᵀ/√d) X`` without residual or normalisation:

1. with the same W_Q, W_K in all layers, X converges to a matrix of rank ≤ 1;
2. with fresh random ones, the mean of the limit over the weights has rank ≤ 1.

Both are tested as statements on the mean over draws of the weights; Proposition 1 has one draw. A
proposition holds if this mean has rank ≤ 1 after the last layer at γ = 0.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from oversmoothing.checks import require
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.transformer import BLOCKS, RandomTransformer
from oversmoothing.lab.tasks import rank
from oversmoothing.lab.tasks.base import Job, Parts, Result, Task
from oversmoothing.lab.tasks.rank import Gammas, gamma_grid
from oversmoothing.metrics import smoothness

RESOLVED = 1e3  # outputs above this many rounding errors of the input are taken as non-zero


@dataclass(frozen=True)
class Propositions(Task):
    """Measures rank and σ₂/σ₁ of the mean output over draws of the weights, after every layer.

    Args:
        proposition: 1 or 2.
        draws: number of draws of the weights for each seed; 1 for Proposition 1. Seed s uses the
            draws s·draws … s·draws + draws − 1.
        gammas: values of γ, of which the propositions concern 0; None: use the aggregators' own.
        dtype: float64 or float32.
    """

    needs: ClassVar[tuple[str, ...]] = ("backbone",)
    seeds_together: ClassVar[bool] = True
    proposition: Literal[1, 2]
    draws: int
    gammas: Gammas = None
    dtype: Literal["float64", "float32"] = "float64"

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> RandomTransformer:
        """Builds one network for each draw of each seed."""
        fits = self.draws == 1 or (self.draws > 1 and self.proposition == 2)
        require("task", draws=(self.draws, fits, "1 or more; 1 for Proposition 1"))
        draws = [seed * self.draws + draw for seed in seeds for draw in range(self.draws)]
        model = rank.build(parts, draws, gamma_grid(self.gammas), device, self.dtype)
        _check_backbone(model, self.proposition)
        return model

    def run(self, network: RandomTransformer, job: Job) -> dict[int, Result]:
        """Simulates the networks and tests the proposition.

        Saves ``curves-seed{seed}.npz`` with gamma (G,), depth (L,), and (G, L) rank, ratio
        (σ₂/σ₁) and size (largest entry) of the mean, and draw_rank (the highest rank of a draw).
        """
        grid = gamma_grid(self.gammas)
        curves = rank.simulate(network, job.recorder, lambda y: _measure(y, self.draws), grid)
        eps = torch.finfo(network.dtype).eps
        gamma, depth = np.array(grid or [np.nan]), np.arange(1, network.depth + 1)
        results = {}
        for i, seed in enumerate(job.seeds):
            of_seed = {name: values[i] for name, values in curves.items()}
            arrays = {name: values.numpy() for name, values in of_seed.items()}
            job.recorder.save_arrays(f"curves-seed{seed}", gamma=gamma, depth=depth, **arrays)
            verdicts = _verdicts(grid, of_seed, eps)
            holds = {v["gamma"]: v["holds"] for v in verdicts}.get(0.0)
            results[seed] = {"holds": holds, "dtype": self.dtype, "by_gamma": verdicts}
        return results


def _measure(output: Tensor, draws: int) -> dict[str, Tensor]:
    """Measures the outputs of a layer. Shapes: (S·draws, G, n, d) -> each (S, G)."""
    output = output.unflatten(0, (-1, draws))
    mean = output.mean(dim=1)
    sigma = smoothness.singular_values(mean, exact=True)
    return {
        "rank": smoothness.rank_of(sigma),
        "ratio": torch.where(sigma[..., 0] == 0, 0.0, sigma[..., 1:2].sum(-1) / sigma[..., 0]),
        "size": mean.abs().amax(dim=(-2, -1)),
        "draw_rank": smoothness.rank(output).amax(dim=1),
    }


def _verdicts(grid: list[float] | None, curves: dict[str, Tensor], eps: float) -> list[dict]:
    """Returns, for every γ, the numbers after the last layer with an output above rounding errors.

    With centering the output shrinks to 0 within some layers, and its rank is then meaningless.
    """
    verdicts = []
    for g, gamma in enumerate(grid or [None]):
        depth = _resolved(curves["size"][g], eps)
        last = max(depth - 1, 0)
        at = {name: rank.numbers(v[g, last : last + 1])[0] for name, v in curves.items()}
        holds = at["rank"] is not None and at["rank"] <= 1
        verdict = {"gamma": gamma, "depth": depth, **at, "holds": holds}
        words = _in_words(verdict, len(curves["size"][g]))
        verdicts.append({**verdict, "verdict": words})
    return verdicts


def _in_words(verdict: dict, layers: int) -> str:
    rank = "not finite" if verdict["rank"] is None else f"{verdict['rank']:g}"
    ratio = "unknown" if verdict["ratio"] is None else f"{verdict['ratio']:.1e}"
    lost = ", later ones are lost in rounding" if verdict["depth"] < layers else ""
    holds = "holds" if verdict["holds"] else "does not hold"
    return f"rank {rank}, σ₂/σ₁ {ratio} after {verdict['depth']} layers{lost}: rank ≤ 1 {holds}"


def _resolved(size: Tensor, eps: float) -> int:
    """Counts the leading layers whose output is above the rounding errors of their input."""
    before = torch.cat([size.new_ones(1), size[:-1]])  # the input of the first layer is I
    lost = ~(size > RESOLVED * eps * before)
    return int(lost.int().argmax()) if lost.any() else len(size)


def _check_backbone(model: RandomTransformer, proposition: int) -> None:
    """Refuses a backbone that the proposition does not concern."""
    needed = {
        "block=plain": model.block is BLOCKS["plain"],
        "value=identity": model.weights.value == "identity",
        f"shared={proposition == 1}".lower(): model.shared == (proposition == 1),
    }
    missing = [f"backbone.{setting}" for setting, given in needed.items() if not given]
    if missing:
        raise InputError(
            f"task.proposition: Proposition {proposition} speaks of {', '.join(missing)} only; set "
            f"that, or choose experiment=prop{proposition}"
        )
