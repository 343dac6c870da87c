"""Builds the network of a simulation for a grid of γ, and runs it layer by layer."""

import math
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.aggregators.base import advance
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.random.transformer import RandomTransformer
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import Parts
from oversmoothing.lab.tasks.simulation.gammas import with_gamma

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


def measured_depths(depth: int, every: int) -> list[int]:
    """Returns every ``every``-th depth, and the last one.

    Raises:
        InputError: ``every`` is below 1.
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
    logged, curves = set(depths[:: math.ceil(len(depths) / LOGGED)]), Curves(depths)
    if saved := recorder.load_checkpoint():
        with recorder.restoring():
            model.load_state_dict(saved["model"])
            curves.load_state_dict(saved["curves"])
    with recorder.progress(model.depth, "layers") as bar:
        bar.update(model.layer)
        for output in model.outputs():
            if model.layer in curves.place:
                values = {name: value.cpu() for name, value in measure(output).items()}
                curves.put(model.layer, values)
                if model.layer in logged:
                    recorder.log(layer=model.layer, **_means(values, gammas))
            bar.update(1)
            if recorder.checkpoint_due():
                state = {"model": model.state_dict(), "curves": curves.state_dict()}
                recorder.save_checkpoint(state)
    return curves.values


class Curves:
    """Measured values by depth, in preallocated tensors.

    A new small tensor for each layer would fragment the memory, so that large tensors of the
    simulation could not reuse it: 10 MB per layer with 61 γ and three seeds.

    Args:
        depths: at which values are measured.

    Attributes:
        values: by name, (S, G, D).
        place: depth -> its index.
    """

    def __init__(self, depths: list[int]) -> None:
        self.values: dict[str, Tensor] = {}
        self.place = {depth: index for index, depth in enumerate(depths)}
        self.count = 0

    def put(self, depth: int, values: dict[str, Tensor]) -> None:
        """Stores the values (S, G) at a depth; depths must come in order."""
        for name, value in values.items():
            whole = self.values.setdefault(name, value.new_empty(*value.shape, len(self.place)))
            whole[..., self.place[depth]] = value
        self.count = self.place[depth] + 1

    def state_dict(self) -> dict[str, Tensor]:
        """Returns copies of the values measured so far; slices would be saved as whole tensors."""
        return {name: whole[..., : self.count].clone() for name, whole in self.values.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continues after the depths that ``state_dict`` saved."""
        for name, values in state.items():
            self.count = values.shape[-1]
            self.values[name] = F.pad(values, (0, len(self.place) - self.count))


def _means(values: dict[str, Tensor], gammas: list[float] | None) -> dict[str, float | None]:
    """Returns means over seeds, by metric and γ."""
    ends = [""] if gammas is None else [f"/gamma={gamma:g}" for gamma in gammas]
    means = {name: numbers(value.mean(dim=0)) for name, value in values.items()}
    return {f"{name}{end}": mean for name in means for end, mean in zip(ends, means[name])}


def numbers(values: Tensor) -> list[float | None]:
    """Converts a vector to JSON numbers; None where a value is not finite."""
    return [value if math.isfinite(value) else None for value in values.double().tolist()]
