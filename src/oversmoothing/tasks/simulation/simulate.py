"""What the simulations share: the network for a grid of γ, and the loop over its layers."""

import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from oversmoothing.aggregators.base import advance
from oversmoothing.backbones.random.transformer import RandomTransformer
from oversmoothing.errors import InputError
from oversmoothing.store.checkpoints import restoring
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.base import Parts
from oversmoothing.tasks.simulation.gammas import with_gamma

LOGGED = 100  # approximate number of lines in the log
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def build(
    parts: Parts, seeds: list[int], gammas: list[float] | None, device: torch.device, dtype: str
) -> RandomTransformer:
    """Builds the simulated network, with one copy per γ.

    Raises:
        InputError: an unknown dtype, another kind of backbone, one that refuses its arguments or
            aggregators, or a grid of γ for none or several of the aggregators.
    """
    kind, aggregators = getattr(parts.backbone, "func", parts.backbone), parts.aggregators
    if kind is not RandomTransformer:
        raise InputError(
            f"backbone: this task simulates RandomTransformer, got {kind.__name__}; choose "
            "backbone=transformer"
        )
    if dtype not in DTYPES:
        raise InputError(f"task.dtype: expected one of {', '.join(DTYPES)}; got {dtype}")
    if gammas is not None:
        gamma = torch.tensor(gammas, dtype=DTYPES[dtype], device=device).view(-1, 1, 1)
        aggregators = with_gamma(aggregators, gamma)
    model = parts.backbone(
        aggregators=aggregators,
        seeds=seeds,
        copies=len(gammas or [None]),
        device=device,
        dtype=DTYPES[dtype],
    )
    for site in model.sites.values():
        advance(site, sys.maxsize)  # nothing is trained: warm-ups are over
    return model


def measured_depths(depth: int, every: int) -> list[int]:
    """Returns every ``every``-th depth, and the last one.

    Raises:
        InputError: ``every`` below 1.
    """
    if every < 1:
        raise InputError(f"task.every: expected 1 or more layers, got {every}")
    return [*range(every, depth, every), depth]


def simulate(
    model: RandomTransformer,
    recorder: Recorder,
    measure: Callable[[Tensor], dict[str, Tensor]],
    gammas: list[float] | None,
    every: int = 1,
) -> dict[str, Tensor]:
    """Runs a network to its full depth, starting from the last checkpoint if there is one.

    Args:
        model: the network.
        recorder: takes logs and checkpoints.
        measure: maps the output of a layer to named tensors (S, G).
        gammas: of the G copies; they name the logged values.
        every: number of layers between two measurements; the last layer is always measured.

    Returns:
        The measured tensors stacked over depth: (S, G, D).
    """
    depths = measured_depths(model.depth, every)
    logged = set(depths[:: math.ceil(len(depths) / LOGGED)])
    depths = set(depths)
    curves: dict[str, list[Tensor]] = {}
    if saved := recorder.load_checkpoint():
        with restoring(recorder.folder):
            model.load_state_dict(saved["model"])
            curves = {name: list(values.unbind(-1)) for name, values in saved["curves"].items()}
    with recorder.progress(model.depth, "layers") as bar:
        bar.update(model.layer)
        for output in model.outputs():
            if model.layer in depths:
                values = {name: value.cpu() for name, value in measure(output).items()}
                for name, value in values.items():
                    curves.setdefault(name, []).append(value)
                if model.layer in logged:
                    recorder.log(layer=model.layer, **_means(values, gammas))
            bar.update(1)
            if recorder.checkpoint_due():
                recorder.save_checkpoint({"model": model.state_dict(), "curves": _stacked(curves)})
    return _stacked(curves)


def _means(values: dict[str, Tensor], gammas: list[float] | None) -> dict[str, float | None]:
    """Returns means over seeds, by metric and γ."""
    ends = [""] if gammas is None else [f"/gamma={gamma:g}" for gamma in gammas]
    means = {name: numbers(value.mean(dim=0)) for name, value in values.items()}
    return {f"{name}{end}": mean for name in means for end, mean in zip(ends, means[name])}


def _stacked(curves: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack(values, dim=-1) for name, values in curves.items()}


def numbers(values: Tensor) -> list[float | None]:
    """Converts a vector to JSON numbers; None where a value is not finite."""
    return [value if math.isfinite(value) else None for value in values.double().tolist()]
