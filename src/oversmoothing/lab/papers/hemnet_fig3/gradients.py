"""Gradients and ELBO by iteration of a network's EM attention, at a moment of its training.

X are the tokens that enter the EM. See HEMNet (Song, Kim, Shim, AAAI 2021), Figure 3.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from oversmoothing.aggregators.em import EM, input_gradients
from oversmoothing.errors import InputError
from oversmoothing.lab.tasks.segmentation.network import Segmenter
from oversmoothing.lab.training.loop import Batch, Objective, to_device
from oversmoothing.metrics.elbo import elbo_by_step

TOLERANCE = 1e-6  # relative to the ELBO: rounding of γ and μ in float32
Profile = dict[str, Any]


def em_of(network: Segmenter) -> EM:
    """Returns the EM attention in the unit of a CNN. InputError: the network has none."""
    unit = getattr(network.backbone, "unit", None)
    found = [a for a in unit.aggregators if isinstance(a, EM)] if unit else []
    if not found:
        raise InputError(
            "aggregator: no EM attention after a CNN; choose aggregator=hem, em_gradient or em "
            "and a CNN as backbone"
        )
    return found[0]


def with_steps(network: Segmenter, step_size: float, iterations: int) -> Segmenter:
    """Returns a copy of the network whose EM takes ``iterations`` steps of size η in training.

    Raises:
        InputError: the network has no EM, its EM stops gradients, or a value is out of range.
    """
    network = copy.deepcopy(network)
    em = em_of(network)
    if not em.passes_gradient:
        raise InputError("aggregator.gradients: expected true; else no gradient reaches X")
    if not 0 < step_size <= 1 or iterations < 1:
        raise InputError(
            f"step size, iterations: expected (0, 1] and 1 or more, got {step_size}, {iterations}"
        )
    em.step_size, em.iterations = step_size, iterations
    return network


def profile(network: Segmenter, batches: Sequence[Batch], objective: Objective) -> Profile:
    """Measures gradients to X and the ELBO in training mode, without changing the network.

    Args:
        network: its EM passes gradients.
        batches: as in training; the numbers are means over them. ``batch_size`` is the number of
            images over which the loss is averaged.
        objective: the loss.

    Returns:
        ``n_steps``, ``e_steps``: mean |∂L/∂X| through each iteration's step; ``total``: mean
        |∂L/∂X| of the sum of these gradients; ``elbo``: nats per token after the E- and the N-step
        of each iteration, (T, 2); ``n_falls``, ``e_falls``: share of the steps that lower it.
    """
    network = copy.deepcopy(network).train()
    network.requires_grad_(False)
    network.backbone.unit.conv1.requires_grad_(True)  # gradients end at X
    place = next(network.parameters()).device
    with torch.random.fork_rng():
        torch.manual_seed(0)  # dropout
        found = [_of_batch(network, to_device(batch, place), objective) for batch in batches]
    return {key: _mean([each[key] for each in found]) for key in found[0]}


def _of_batch(network: Segmenter, batch: Batch, objective: Objective) -> Profile:
    em = em_of(network)
    with em.recording() as record:
        losses = objective.losses(network, objective.prepare(batch, 0), 0)
        sum(losses.values()).backward()
    x = record[0].x_n.detach()
    steps = [[getattr(i, key).detach() for i in record] for key in ("before", "gamma", "mu")]
    path = elbo_by_step(x, *steps, variance=em.variance) / x.shape[-2]  # (B, T, 2)
    return input_gradients(record) | {"elbo": path.mean(dim=0).tolist()} | _falls(path)


def _falls(path: torch.Tensor) -> dict[str, float]:
    """Returns the shares of N-steps and E-steps that lower the ELBO. Shapes: path (B, T, 2)."""
    line = path.flatten(1)  # E, N, E, N, …
    falls = (line[:, :-1] - line[:, 1:] > TOLERANCE * line[:, 1:].abs()).double()
    n_falls, e_falls = falls[:, 0::2].mean().item(), falls[:, 1::2].mean()  # NaN of no E-step
    return {"n_falls": n_falls, "e_falls": e_falls.nan_to_num().item()}


def _mean(values: list[Any]) -> Any:
    return torch.tensor(values, dtype=torch.float64).mean(dim=0).tolist()


def watched(
    loader: Callable[..., Iterator[Batch]], steps: int, every: int, look: Callable[[int], object]
) -> Callable[..., Iterator[Batch]]:
    """Returns a loader that ends a training early and calls a function on the way.

    Args:
        loader: of the training.
        steps: number of batches; learning rates stay those of the whole recipe.
        every: steps between two calls.
        look: called with the number of steps done: before the first step, after every ``every``
            steps and after the last one.
    """

    def batches(**share: Any) -> Iterator[Batch]:
        for step, batch in enumerate(itertools.islice(loader(**share), steps)):
            if step % every == 0:
                look(step)
            yield batch
        look(steps)

    return batches
