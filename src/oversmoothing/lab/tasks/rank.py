"""Rank against depth and γ (Ali et al.: Centered Self-Attention Layers, Sec. 4.1, Fig. 1).

The paper's claim: the rank falls to 1 for every γ > −1 and for no γ ≤ −1. Every γ is checked.
"""

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.aggregators.base import Aggregator, advance
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.transformer import RandomTransformer
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import Job, Parts, Result, Task
from oversmoothing.metrics import smoothness

Gammas = list[float] | str | None


@dataclass(frozen=True)
class Rank(Task):
    """Simulates all γ and seeds at once and measures the output after the layers.

    Args:
        gammas: values for the aggregator with a gamma: a list or ``start:stop:step``; None: use the
            aggregators' own.
        dtype: of the simulation, float64 or float32; measurements are in float64.
    """

    needs: ClassVar[tuple[str, ...]] = ("backbone",)
    seeds_together: ClassVar[bool] = True
    gammas: Gammas = None
    dtype: Literal["float64", "float32"] = "float64"

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> RandomTransformer:
        """Builds the networks; each seed draws its own weights, the same for every γ."""
        grid = gamma_grid(self.gammas)
        return build(parts, seeds, grid, device, self.dtype)

    def run(self, network: RandomTransformer, job: Job) -> dict[int, Result]:
        """Simulates the networks and measures their outputs.

        Saves ``curves-seed{seed}.npz`` with gamma (G,), depth (D,), and rank, effective_rank,
        cosine, token_variance (G, D); a rank of −1 means not finite.
        """
        grid = gamma_grid(self.gammas)
        depths = [*range(1, network.depth + 1)]
        curves = simulate(network, job.recorder, _measure, grid)
        results = {}
        for i, seed in enumerate(job.seeds):
            of_seed = {name: values[i] for name, values in curves.items()}
            _save(job.recorder, seed, grid, depths, of_seed)
            own = {"dtype": self.dtype, "gammas": grid}
            results[seed] = own | _summary(grid, depths, of_seed)
        return results


LOGGED = 100  # approximate number of lines in the log


def build(
    parts: Parts, seeds: list[int], gammas: list[float] | None, device: torch.device, dtype: str
) -> RandomTransformer:
    """Builds the simulated network, with one copy per γ.

    Raises:
        InputError: the backbone is of another kind or refuses its arguments or aggregators, or not
            exactly one aggregator has a gamma.
    """
    kind, aggregators = getattr(parts.backbone, "func", parts.backbone), parts.aggregators
    if kind is not RandomTransformer:
        raise InputError(
            f"backbone: this task simulates RandomTransformer, got {kind.__name__}; choose "
            "backbone=transformer"
        )
    if gammas is not None:
        gamma = torch.tensor(gammas, dtype=getattr(torch, dtype), device=device).view(-1, 1, 1)
        aggregators = with_gamma(aggregators, gamma)
    model = parts.backbone(
        aggregators=aggregators,
        seeds=seeds,
        copies=len(gammas or [None]),
        device=device,
        dtype=getattr(torch, dtype),
    )
    for site in model.sites.values():
        advance(site, sys.maxsize)  # ends warm-ups, since nothing is trained
    return model


def simulate(
    model: RandomTransformer,
    recorder: Recorder,
    measure: Callable[[Tensor], dict[str, Tensor]],
    gammas: list[float] | None,
) -> dict[str, Tensor]:
    """Runs a network to its full depth, starting from the last checkpoint if there is one.

    Args:
        model: the network.
        recorder: takes logs and checkpoints.
        measure: maps the output of a layer to named tensors (S, G).
        gammas: of the G copies; they name the logged values.

    Returns:
        The measured tensors stacked over depth: (S, G, D).
    """
    between = math.ceil(model.depth / LOGGED)
    curves: dict[str, Tensor] = {}  # whole from the start: small tensors would fragment the memory
    if saved := recorder.load_checkpoint():
        with recorder.restoring():
            model.load_state_dict(saved["model"])
            for name, values in saved["curves"].items():
                curves[name] = F.pad(values, (0, model.depth - values.shape[-1]))
    with recorder.progress(model.depth, "layer") as bar:
        bar.update(model.layer)
        for output in model.outputs():
            values = {name: value.cpu() for name, value in measure(output).items()}
            for name, value in values.items():
                whole = curves.setdefault(name, value.new_zeros(*value.shape, model.depth))
                whole[..., model.layer - 1] = value
            if (model.layer - 1) % between == 0:
                recorder.log(layer=model.layer, **_means(values, gammas))
            bar.update(1)
            if recorder.checkpoint_due():
                recorder.save_checkpoint({"model": model.state_dict(), "curves": curves})
    return curves


def _means(values: dict[str, Tensor], gammas: list[float] | None) -> dict[str, float | None]:
    """Returns means over seeds, by metric and γ."""
    ends = [""] if gammas is None else [f"/gamma={gamma:g}" for gamma in gammas]
    means = {name: numbers(value.mean(dim=0)) for name, value in values.items()}
    return {f"{name}{end}": mean for name in means for end, mean in zip(ends, means[name])}


def numbers(values: Tensor) -> list[float | None]:
    """Converts a vector to JSON numbers; None where a value is not finite."""
    return [value if math.isfinite(value) else None for value in values.double().tolist()]


Factories = list[Callable[..., Aggregator]]


MOST = 100_000


def gamma_grid(gammas: Gammas) -> list[float] | None:
    """Returns the values of a list or of ``start:stop:step`` (both ends included); None for None.

    Raises:
        InputError: there is no value, a value is not finite, or the grid is not ascending.
    """
    if gammas is None:
        return None
    values = _steps(gammas) if isinstance(gammas, str) else [float(gamma) for gamma in gammas]
    if not values or not all(math.isfinite(gamma) for gamma in values):
        raise InputError(f"task.gammas: expected one or more finite numbers, got {gammas}")
    return values


def _steps(grid: str) -> list[float]:
    try:
        start, stop, step = (float(number) for number in grid.split(":"))
        count = math.floor((stop - start) / step + 1e-9) + 1
    except (ValueError, OverflowError, ZeroDivisionError):  # inf and nan have no floor
        start = stop = step = math.nan
    if not (step > 0 and stop >= start):
        raise InputError(
            "task.gammas: expected start:stop:step with start <= stop and step > 0 "
            f"(-1.5:1.5:0.05), or a list, got {grid}"
        )
    if count > MOST:
        raise InputError(f"task.gammas: expected at most {MOST:,} values, got {grid}; split it")
    return [round(start + i * step, 10) for i in range(count)]  # -1 exactly, not -0.99999…


def with_gamma(aggregators: Factories, gamma: Tensor) -> Factories:
    """Passes γ (G, 1, 1), one value per copy, to the aggregator that has a gamma.

    Raises:
        InputError: not exactly one aggregator has a gamma.
    """
    has_gamma = ["gamma" in inspect.signature(make).parameters for make in aggregators]
    if sum(has_gamma) != 1:
        raise InputError(
            f"task.gammas: {sum(has_gamma)} of the aggregators have a gamma, expected one; choose "
            "aggregator=centered, or set task.gammas=null to take the aggregators as they are"
        )
    for factory in (f for f, has in zip(aggregators, has_gamma) if has):
        default = inspect.signature(getattr(factory, "func", factory)).parameters["gamma"].default
        if getattr(factory, "keywords", {}).get("gamma", default) != default:
            raise InputError(
                "aggregator.gamma: task.gammas says which γ are simulated; set that, or "
                "task.gammas=null to simulate aggregator.gamma alone"
            )
    return [partial(f, gamma=gamma) if has else f for f, has in zip(aggregators, has_gamma)]


NOT_FINITE = -1  # rank in the saved curves where the output is NaN or infinite


def _measure(output: Tensor) -> dict[str, Tensor]:
    """Measures the outputs of a layer, each (S, G), with one decomposition for both ranks."""
    sigma = smoothness.singular_values(output)
    return {
        "rank": smoothness.rank_of(sigma),
        "effective_rank": smoothness.effective_rank_of(sigma),
        "cosine": smoothness.cosine(output),
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
    summary = {f"final_{name}": numbers(v[:, -1]) for name, v in curves.items()}
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
