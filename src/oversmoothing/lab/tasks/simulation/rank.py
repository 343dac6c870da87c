"""Rank against depth and γ (Ali et al.: Centered Self-Attention Layers, Sec. 4.1, Fig. 1).

The paper's claim: the rank falls to 1 for every γ > −1 and for no γ ≤ −1. Every γ is checked.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from oversmoothing.lab.backbones.random.transformer import RandomTransformer
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import Job, Parts, Result, Task
from oversmoothing.lab.tasks.simulation import simulate
from oversmoothing.lab.tasks.simulation.gammas import Gammas, gamma_grid
from oversmoothing.metrics import smoothness

NOT_FINITE = -1  # rank in the saved curves where the output is NaN or infinite


@dataclass(frozen=True)
class Rank(Task):
    """Simulates all γ and seeds at once and measures the output after the layers.

    Args:
        gammas: values for the aggregator with a gamma: a list or ``start:stop:step``; None: use the
            aggregators' own.
        dtype: of the simulation, float64 or float32; measurements are in float64.
        every: number of layers between measurements; the last layer is always measured.
    """

    needs: ClassVar[tuple[str, ...]] = ("backbone",)
    seeds_together: ClassVar[bool] = True
    gammas: Gammas = None
    dtype: Literal["float64", "float32"] = "float64"
    every: int = 1

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> RandomTransformer:
        """Builds the networks; each seed draws its own weights, the same for every γ.

        Raises:
            InputError: gammas are out of range, or no aggregator has a gamma.
        """
        grid = gamma_grid(self.gammas)
        return simulate.build(parts, seeds, grid, device, self.dtype)

    def check(self, network: RandomTransformer, parts: Parts) -> None:
        """Checks the range of ``every``."""
        simulate.measured_depths(network.depth, self.every)

    def run(self, network: RandomTransformer, job: Job) -> dict[int, Result]:
        """Simulates the networks and measures their outputs.

        Saves ``curves-seed{seed}.npz`` with gamma (G,), depth (D,), and rank, effective_rank,
        mean_cosine, token_variance (G, D); a rank of −1 means not finite.
        """
        grid = gamma_grid(self.gammas)
        depths = simulate.measured_depths(network.depth, self.every)
        curves = simulate.simulate(network, job.recorder, _measure, grid, self.every)
        results = {}
        for i, seed in enumerate(job.seeds):
            of_seed = {name: values[i] for name, values in curves.items()}
            _save(job.recorder, seed, grid, depths, of_seed)
            own = {"dtype": self.dtype, "gammas": grid}
            results[seed] = own | _summary(grid, depths, of_seed)
        return results


def _measure(output: Tensor) -> dict[str, Tensor]:
    """Measures the outputs of a layer, each (S, G), with one decomposition for both ranks."""
    sigma = smoothness.singular_values(output)
    return {
        "rank": smoothness.rank_of(sigma),
        "effective_rank": smoothness.effective_rank_of(sigma),
        "mean_cosine": smoothness.mean_cosine(output),
        "token_variance": smoothness.token_variance(output),
    }


def _save(
    recorder: Recorder, seed: int, grid: list[float] | None, depths: list[int], curves: dict
) -> None:
    arrays = {name: values.numpy() for name, values in curves.items()}
    arrays["rank"] = curves["rank"].nan_to_num(NOT_FINITE).to(torch.int16).numpy()
    gamma = np.array([np.nan] if grid is None else grid)
    recorder.save_arrays(f"curves-seed{seed}", gamma=gamma, depth=np.array(depths), **arrays)


def _summary(grid: list[float] | None, depths: list[int], curves: dict[str, Tensor]) -> dict:
    """Returns the result of one seed; lists are by γ."""
    rank, final = curves["rank"], curves["rank"][:, -1]
    summary = {f"final_{name}": simulate.numbers(v[:, -1]) for name, v in curves.items()}
    summary["first_depth_of_rank_1"] = [
        depths[int(low.int().argmax())] if low.any() else None for low in rank <= 1
    ]
    if grid is not None:
        summary |= contradictions(grid, final.tolist())
    return summary


def contradictions(grid: list[float], final_rank: list[float]) -> dict:
    """Returns whether the claim holds, and lists the γ that contradict it.

    The lists are ``stays_above_1`` (γ > −1), ``falls_to_1`` (γ ≤ −1, including rank 0) and
    ``not_finite`` (the output overflowed, so there is no rank).
    """
    pairs = list(zip(grid, final_rank))
    against = {
        "stays_above_1": [gamma for gamma, rank in pairs if gamma > -1 and rank > 1],
        "falls_to_1": [gamma for gamma, rank in pairs if gamma <= -1 and rank <= 1],
        "not_finite": [gamma for gamma, rank in pairs if math.isnan(rank)],
    }
    count = sum(map(len, against.values()))
    return {"claim_holds": count == 0, "gammas_against_claim": count} | against
