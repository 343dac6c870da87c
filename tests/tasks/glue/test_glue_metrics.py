"""GLUE's metrics equal their definitions and counts by hand, also if they are undefined."""

import pytest
import torch

from oversmoothing.lab.tasks import glue as glue

TRUTH = torch.tensor([1, 1, 1, 0, 0, 1])
FOUND = torch.tensor([1, 0, 1, 1, 0, 1])  # TP 3, FP 1, FN 1, TN 1


def test_by_hand() -> None:
    assert glue.accuracy(FOUND, TRUTH) == pytest.approx(100 * 4 / 6)
    assert glue.f1(FOUND, TRUTH) == pytest.approx(100 * 6 / 8)
    root = (4 * 4 * 2 * 2) ** 0.5
    assert glue.matthews(FOUND, TRUTH) == pytest.approx(100 * (3 * 1 - 1 * 1) / root)


def ranks(x: torch.Tensor) -> torch.Tensor:
    """By definition: equal values share the mean of their ranks."""
    below, equal = (x[:, None] > x).sum(1), (x[:, None] == x).sum(1)
    return below + (equal + 1) / 2


@pytest.mark.parametrize("seed", range(3))
def test_correlations_follow_their_definition(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randint(0, 6, (200,), generator=generator).double()  # many ties
    b = a + 2 * torch.randn(200, generator=generator)
    assert glue.pearson(a, b) == pytest.approx(100 * torch.corrcoef(torch.stack([a, b]))[0, 1])
    expected = 100 * torch.corrcoef(torch.stack([ranks(a), ranks(b)]).double())[0, 1]
    assert glue.spearman(a, b) == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["pearson", "spearman", "matthews"])
def test_a_constant_prediction_scores_nothing(metric: str) -> None:
    constant = torch.full((6,), 0.1, dtype=torch.float64)
    assert getattr(glue, metric)(constant, TRUTH) == 0.0
    assert glue.f1(torch.zeros(6), torch.zeros(6)) == 0.0


def test_the_score_is_the_mean_of_the_tasks_metrics() -> None:
    found = glue.measure(("accuracy", "f1"), FOUND, TRUTH)
    assert found["score"] == pytest.approx((found["accuracy"] + found["f1"]) / 2)
