"""Laws of the verdict, and of paired tests."""

import math
import random

import numpy as np
import pytest
from made_up import cell, measured
from scipy.stats import t, ttest_ind, ttest_rel

from oversmoothing.lab.report.verdict import Measured, Verdict, compare, differ, margin, verdict


def draws(seed: int, n: int = 5, spread: float = 3.0) -> list[float]:
    source = random.Random(seed)
    return [50 + source.gauss(0, spread) for _ in range(n)]


@pytest.mark.parametrize("seed", range(20))
def test_symmetric_around_the_published_value(seed: int) -> None:
    ours = measured(*draws(seed))
    mirrored = measured(*(100 - value for value in ours.values))
    published = cell(50.0, 1.0)
    assert verdict(published, ours) is verdict(published, mirrored)


@pytest.mark.parametrize("seed", range(20))
def test_a_greater_tolerance_never_takes_agreement_away(seed: int) -> None:
    ours = measured(*draws(seed))
    found = [verdict(cell(47.0, 0.5, tolerance=t), ours) for t in (0, 0.5, 1, 2, 4, 8, 16)]
    words = [word is Verdict.WITHIN for word in found]
    assert words == sorted(words)
    assert words[-1]


def test_margin_by_hand() -> None:
    ours = measured(48.0, 52.0)
    by_hand = 2 * math.sqrt(9 / 5 + 8 / 2)
    assert margin(ours, 3.0, 5, 1.0) == pytest.approx(by_hand)
    assert verdict(cell(50.0 + by_hand - 1e-6, 3.0), ours) is Verdict.WITHIN
    assert verdict(cell(50.0 + by_hand + 1e-6, 3.0), ours) is Verdict.OFF


def test_one_class_predicted_on_both_sides() -> None:
    """7.79 ± 0.00 in print, 161 of 2,068 nodes here, in every seed."""
    share = 100 * 161 / 2068
    published = cell(7.79, 0.0)
    assert verdict(published, measured(*[share] * 5)) is Verdict.WITHIN
    assert verdict(cell(7.79, 0.0, tolerance=0.0), measured(*[7.79] * 5)) is Verdict.WITHIN
    assert verdict(published, measured(*[19.65] * 5)) is Verdict.OFF


def test_a_difference_equal_to_the_tolerance_is_within_it() -> None:
    assert verdict(cell(79.79), measured(80.79)) is Verdict.WITHIN
    assert verdict(cell(79.79), measured(80.80)) is Verdict.OFF


def test_a_correction_is_what_counts() -> None:
    ours = measured(*[22.3684] * 5)
    assert verdict(cell(23.37, 0.0, tolerance=0.1, corrected=22.37), ours) is Verdict.WITHIN
    assert verdict(cell(23.37, 0.0, tolerance=0.1), ours) is Verdict.OFF


def test_not_measured() -> None:
    assert verdict(cell(50.0), None) is Verdict.MISSING
    assert verdict(cell(50.0, reason="no data"), None) is Verdict.NOT_RUN
    assert verdict(cell(50.0, reason="no data"), measured(50.0)) is Verdict.WITHIN


def test_a_diverged_run_is_off() -> None:
    ours = measured(50.0, math.nan)
    baseline = cell(40.0, key="base"), measured(60.0, 60.1)
    assert verdict(cell(50.0, 1.0), ours, baseline) is Verdict.OFF


BASE = cell(60.0, 1.0, "base")  # the paper: ours, 70, is better by 10


@pytest.mark.parametrize(
    ("ours", "base", "word"),
    [
        ([50.0, 50.5, 49.5], [60.0, 60.5, 59.5], Verdict.CONTRADICTED),
        ([60.5, 61.0, 60.0], [59.0, 59.5, 58.5], Verdict.OFF),  # same sign
        ([50.0, 70.0, 45.0], [60.0, 75.0, 45.0], Verdict.WITHIN),  # noise covers it
        ([50.0, 50.5, 49.5], [50.1, 50.6, 49.6], Verdict.OFF),  # other sign, by chance
        ([50.0], [60.0, 60.5, 59.5], Verdict.OFF),  # one seed shows nothing
        ([50.0, 50.0], [60.0, 60.0], Verdict.CONTRADICTED),  # no spread at all
        ([50.0, 50.0], [60.0, 60.5, 59.5], Verdict.CONTRADICTED),  # none on one side
        ([50.0, 50.0], [50.0, 50.0], Verdict.OFF),
    ],
)
def test_contradicted_needs_the_other_sign_and_significance(
    ours: list[float], base: list[float], word: Verdict
) -> None:
    assert verdict(cell(70.0, 1.0), measured(*ours), (BASE, measured(*base))) is word


@pytest.mark.parametrize("seed", range(10))
def test_significance_is_welchs(seed: int) -> None:
    a, b = measured(*draws(seed, 4)), measured(*(v + 4 for v in draws(seed + 100, 6, 1.0)))
    expected = ttest_ind(a.values, b.values, equal_var=False).pvalue < 0.05
    assert differ(a, b) == differ(b, a) == expected


def test_a_control_gets_no_verdict_whatever_it_measures() -> None:
    """What the paper does not claim can neither hold nor be contradicted."""
    for value in (50.0, 90.0):
        assert verdict(cell(value=50.0, control=True), measured(value, value)) is Verdict.CONTROL


def test_where_nothing_was_published_nothing_is_judged() -> None:
    nothing = cell(None, baseline="base")
    assert verdict(nothing, measured(3.0), (cell(None), measured(9.0))) is Verdict.MEASURED
    assert verdict(nothing, None) is Verdict.MISSING


def test_the_comparison_is_with_corrected_values() -> None:
    ours, base = measured(60.0, 60.5, 59.5), measured(50.0, 50.5, 49.5)
    misprinted = cell(50.0, 1.0, "base", corrected=80.0)  # in truth the paper's row is worse by 10
    assert verdict(cell(70.0, 1.0), ours, (misprinted, base)) is Verdict.CONTRADICTED


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_agrees_with_scipy_and_with_the_formula(n: int) -> None:
    a, b = measured(*draws(n, n)), measured(*draws(n + 100, n))
    found, test = compare(a, b), ttest_rel(a.values, b.values)
    assert found.p == pytest.approx(test.pvalue, rel=1e-9)
    interval = test.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    d = np.subtract(a.values, b.values)
    half = t.ppf(0.975, n - 1) * d.std(ddof=1) / math.sqrt(n)
    assert found.high - found.mean == pytest.approx(half)
    assert found.mean == pytest.approx(d.mean())


def test_only_shared_seeds_count_whatever_their_order() -> None:
    a = Measured((3.0, 1.0, 2.0), "a", 1.0, (2, 0, 1))
    b = Measured((10.0, 20.5, 99.0), "b", 1.0, (0, 1, 7))
    found = compare(a, b)
    assert found.differences == (-9.0, -18.5)


def test_one_seed_or_none_is_not_enough() -> None:
    for a, b in (((1.0,), (2.0,)), ((1.0, 2.0), (3.0,))):
        found = compare(measured(*a), measured(*b))
        assert found.text.endswith(", one seed") and math.isnan(found.p)
    elsewhere = Measured((1.0, 2.0), "a", 1.0, (5, 6))
    assert compare(elsewhere, measured(1.0, 2.0)).text == "no seed in common"


def test_no_spread_and_diverged_runs() -> None:
    assert compare(measured(2.0, 3.0), measured(1.0, 2.0)).p == 0
    assert compare(measured(2.0, 3.0), measured(2.0, 3.0)).p == 1
    assert 1.2 - 1.1 != 0.1  # in binary
    assert compare(measured(1.2, 0.1), measured(1.1, 0.0)).p == 0
    assert compare(measured(0.1 + 0.2, 3.0), measured(0.3, 3.0)).p == 1
    assert compare(measured(2.0, math.nan), measured(1.0, 2.0)).text == "not finite"
