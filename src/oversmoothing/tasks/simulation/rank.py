"""Rank against depth and γ (Ali et al.: Centered Self-Attention Layers, Sec. 4.1, Fig. 1).

The paper's claim: the rank falls to 1 for every γ > −1 and for no γ ≤ −1. Every γ is checked.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from oversmoothing.backbones.random.transformer import RandomTransformer
from oversmoothing.metrics import smoothness
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.simulation import simulate as simulation
from oversmoothing.tasks.simulation.gammas import Factories, Gammas, gamma_grid

NOT_FINITE = -1  # rank in the saved curves where the output is NaN or infinite


def probe(
    backbone: Callable[..., RandomTransformer],
    aggregators: Factories,
    gammas: Gammas = None,
    dtype: Literal["float64", "float32"] = "float64",
    every: int = 1,
) -> None:
    """Raises before any work what ``run`` would raise."""
    grid, cpu = gamma_grid(gammas), torch.device("cpu")
    model = simulation.build(backbone, aggregators, [0], grid, cpu, dtype)
    simulation.measured_depths(model.depth, every)


def run(
    backbone: Callable[..., RandomTransformer],
    aggregators: Factories,
    seeds: list[int],
    recorder: Recorder,
    device: torch.device,
    gammas: Gammas = None,
    dtype: Literal["float64", "float32"] = "float64",
    every: int = 1,
) -> dict[int, dict]:
    """Simulates all γ and seeds at once and measures the output after the layers.

    Args:
        backbone: ``RandomTransformer``, lacking what this task adds.
        aggregators: factories; one has a gamma if ``gammas`` are given.
        seeds: each draws its own weights, the same for every γ.
        recorder: the run directory; gets ``curves-seed{seed}.npz`` with gamma (G,), depth (D,), and
            rank, effective_rank, mean_cosine, token_variance (G, D); rank −1: not finite.
        device: where to compute.
        gammas: a list, ``start:stop:step``, or None to take the aggregators as they are.
        dtype: float64 or float32, of the simulation; the measuring is in float64.
        every: measure at every so many layers, and at the last.

    Raises:
        InputError: gammas, dtype or every out of range, or gammas that no aggregator takes.
    """
    grid = gamma_grid(gammas)
    model = simulation.build(backbone, aggregators, seeds, grid, device, dtype)
    depths = simulation.measured_depths(model.depth, every)
    curves = simulation.simulate(model, recorder, _measure, grid, every)
    results = {}
    for i, seed in enumerate(seeds):
        of_seed = {name: values[i] for name, values in curves.items()}
        _save(recorder, seed, grid, depths, of_seed)
        results[seed] = {"dtype": dtype, "gammas": grid} | _summary(grid, depths, of_seed)
    return results


def _measure(output: Tensor) -> dict[str, Tensor]:
    """Each (S, G); one decomposition serves both ranks."""
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
    """What the result says of one seed; lists go by γ."""
    rank, final = curves["rank"], curves["rank"][:, -1]
    summary = {f"final_{name}": simulation.numbers(v[:, -1]) for name, v in curves.items()}
    summary["first_depth_of_rank_1"] = [
        depths[int(low.int().argmax())] if low.any() else None for low in rank <= 1
    ]
    if grid is not None:
        summary |= contradictions(grid, final.tolist())
    return summary


def contradictions(grid: list[float], final_rank: list[float]) -> dict:
    """Whether the claim holds, and the γ against it by how they are.

    They are ``stays_above_1`` (γ > −1), ``falls_to_1`` (γ ≤ −1, a rank of 0 included) and
    ``not_finite`` (the output overflowed; there is no rank).
    """
    pairs = list(zip(grid, final_rank))
    against = {
        "stays_above_1": [gamma for gamma, rank in pairs if gamma > -1 and rank > 1],
        "falls_to_1": [gamma for gamma, rank in pairs if gamma <= -1 and rank <= 1],
        "not_finite": [gamma for gamma, rank in pairs if math.isnan(rank)],
    }
    count = sum(map(len, against.values()))
    return {"claim_holds": count == 0, "gammas_against_claim": count} | against
