"""What flows through the iterations of a network's EM attention, at a moment of its training.

X are the tokens that the EM sees. HEMNet (Song, Kim, Shim, AAAI 2021), Figure 3.
"""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.em_iteration import input_gradients
from oversmoothing.errors import InputError
from oversmoothing.metrics.elbo import elbo_by_step
from oversmoothing.tasks.segmentation.network import Segmenter
from oversmoothing.training.batch import Batch, to_device
from oversmoothing.training.loop import Objective

TOLERANCE = 1e-6  # of the size of the ELBO: rounding of γ and μ in float32
Profile = dict[str, Any]


def em_of(network: Segmenter) -> EM:
    """The network's EM attention. InputError: it has none in a CNN's unit."""
    unit = getattr(network.backbone, "unit", None)
    found = [a for a in unit.aggregators if isinstance(a, EM)] if unit else []
    if not found:
        raise InputError(
            "aggregator: no EM attention behind a CNN; choose aggregator=hem, em_gradient or em "
            "and a CNN as backbone"
        )
    return found[0]


def with_steps(network: Segmenter, step_size: float, iterations: int) -> Segmenter:
    """A copy whose EM takes ``iterations`` steps of size η in training.

    Raises:
        InputError: no EM, one that gradients do not pass, or values out of range.
    """
    network = copy.deepcopy(network)
    em = em_of(network)
    if not em.passes_gradient:
        raise InputError("aggregator.gradients: expected true; without, none reaches X")
    if not 0 < step_size <= 1 or iterations < 1:
        raise InputError(
            f"step size, iterations: expected (0, 1] and 1 or more, got {step_size}, {iterations}"
        )
    em.step_size, em.iterations = step_size, iterations
    return network


def profile(network: Segmenter, batches: Sequence[Batch], objective: Objective) -> Profile:
    """Gradients to X and ELBO in training mode, means over fixed batches; nothing is changed.

    Args:
        network: its EM passes gradients.
        batches: as training has them, with ``images``: the loss, and so the gradients, are those of
            a training step of so many images.
        objective: the loss.

    Returns:
        ``n_steps``, ``e_steps``: mean |∂L/∂X| through each iteration's step; ``total``: of their
        sum; ``elbo``: nats a token after the E- and the N-step of each iteration, (T, 2);
        ``n_falls``, ``e_falls``: share of these steps that lower it.
    """
    network = copy.deepcopy(network).train()
    network.requires_grad_(False)
    network.backbone.unit.conv1.requires_grad_(True)  # X gets a gradient, what is before it none
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
    """Shapes: path (B, T, 2)."""
    line = path.flatten(1)  # E, N, E, N, …
    falls = (line[:, :-1] - line[:, 1:] > TOLERANCE * line[:, 1:].abs()).double()
    e_falls = falls[:, 1::2]
    return {
        "n_falls": falls[:, 0::2].mean().item(),
        "e_falls": e_falls.mean().item() if e_falls.numel() else 0.0,
    }


def _mean(values: list[Any]) -> Any:
    return torch.tensor(values, dtype=torch.float64).mean(dim=0).tolist()


def watched(
    loader: Callable[..., Iterator[Batch]],
    steps: int,
    every: int,
    look: Callable[[int], object],
) -> Callable[..., Iterator[Batch]]:
    """A loader that ends a training after ``steps`` and lets someone look at it on the way.

    Args:
        loader: of a training.
        steps: batches; rates stay those of the whole recipe.
        every: steps between two looks.
        look: told the number of steps done, before the first, after every ``every`` and after the
            last one.
    """

    def batches(**share: Any) -> Iterator[Batch]:
        for step, batch in enumerate(itertools.islice(loader(**share), steps)):
            if step % every == 0:
                look(step)
            yield batch
        look(steps)

    return batches
