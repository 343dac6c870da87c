"""Random numbers of the seeds of a batch: dropout is independent of weights and of other seeds."""

import pytest
import torch

from oversmoothing.lab.backbones.per_seed import Seeds

CPU = torch.device("cpu")
SEEDS = [0, 1, 2, 7, 2**31, 2**32, 2**32 + 1, 2**40]


def numbers(generator: torch.Generator) -> tuple[int, ...]:
    return tuple(torch.empty(4, dtype=torch.int64).random_(generator=generator).tolist())


def test_no_two_streams_are_the_same() -> None:
    """Dropout and initial weights differ between all seeds, also above 32 bits."""
    dropout = [numbers(generator) for generator in Seeds(SEEDS, CPU).generators]
    weights = [numbers(torch.Generator().manual_seed(seed)) for seed in SEEDS[:5]]
    assert len({*dropout, *weights}) == len(dropout) + len(weights)


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.6, 0.95])
def test_factors_are_independent_and_have_their_mean(rate: float) -> None:
    """Of neighbouring positions, which share a random word, and of seeds."""
    factors = Seeds([0, 1], CPU).keep((1000, 401), rate)
    assert torch.equal(factors.unique(), torch.tensor([0, 1 / (1 - rate)]))
    kept = (factors > 0).double().flatten(1)
    standard = (kept - (1 - rate)) / (rate * (1 - rate)) ** 0.5
    n = standard.shape[1]
    assert (standard.mean(dim=1).abs() < 5 / n**0.5).all()
    for step in (1, 2, 3, 4):
        assert ((standard[:, step:] * standard[:, :-step]).mean(dim=1).abs() < 5 / n**0.5).all()
    assert standard.prod(dim=0).mean().abs() < 5 / n**0.5


@pytest.mark.parametrize("shape", [(5,), (7, 3)])
def test_a_seed_draws_the_same_in_any_company_and_after_a_resume(shape: tuple[int, ...]) -> None:
    together, alone = Seeds([3, 7, 1], CPU), Seeds([7], CPU)
    for _ in range(2):
        assert torch.equal(together.keep(shape, 0.4)[1], alone.keep(shape, 0.4)[0])
    resumed = Seeds([3, 7, 1], CPU)
    resumed.set_extra_state(together.get_extra_state())
    assert torch.equal(resumed.keep(shape, 0.4), together.keep(shape, 0.4))


@pytest.mark.parametrize("rate", [0.3, torch.tensor([0.2, 0.6])])
def test_masks_drawn_at_once_are_those_drawn_one_by_one(rate: float | torch.Tensor) -> None:
    once, each = Seeds([3, 7], CPU), Seeds([3, 7], CPU)
    shapes = [(5,), (7, 3), (4, 8)]
    once.draw_ahead(shapes, rate)
    for shape in shapes:
        assert torch.equal(once.mask(shape, rate), each.mask(shape, rate))
    assert torch.equal(once.mask((6,), rate), each.mask((6,), rate))
