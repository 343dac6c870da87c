"""Paired tests agree with scipy's and show the same in every format."""

import math
import random
import re

import numpy as np
import pytest
from made_up import entries, measured, own, own_entries
from scipy.stats import t, ttest_rel

from oversmoothing.lab.report.page import Section, page
from oversmoothing.lab.report.publish import comparisons, latex, markdown
from oversmoothing.lab.report.verdict import Measured, compare, judge


def draws(seed: int, n: int) -> list[float]:
    source = random.Random(seed)
    return [50 + source.gauss(0, 3) for _ in range(n)]


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


def test_turning_it_round_turns_the_sign_only() -> None:
    a, b = measured(*draws(1, 4)), measured(*draws(2, 4))
    there, back = compare(a, b), compare(b, a)
    assert back.p == pytest.approx(there.p)
    assert (back.mean, back.low, back.high) == pytest.approx((-there.mean, -there.high, -there.low))


def test_a_difference_that_all_seeds_share_shifts_nothing_else() -> None:
    """What differs between seeds alike cancels: that is what pairing is for."""
    noise = draws(3, 5)
    small = [value + shift for value, shift in zip(noise, (0.9, 1.0, 1.1, 1.0, 1.05))]
    assert compare(measured(*small), measured(*noise)).p < 0.001


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


def test_rows_that_are_measured_are_named_with_their_baselines() -> None:
    head, half = comparisons(own_entries())
    assert head == ["", "CAM", "cosine"]
    assert half[0] == "w/ half against w/ base"
    test = ttest_rel([21.0, 21.5, 21.5], [20.0, 21.0, 19.5])
    assert half[1].startswith("+1.17 [") and half[1].endswith(f"p = {test.pvalue:.3f}, n = 3")


def test_a_row_may_have_a_baseline_of_its_own() -> None:
    found = judge(
        [
            (own("base", "CAM"), measured(1.0, 2.0)),
            (own("long", "CAM", baseline=None), measured(5.0, 6.0)),
            (own("long_half", "CAM", baseline="long"), measured(6.0, 8.0)),
        ]
    )
    _, line = comparisons(found)
    assert line[0] == "w/ long_half against w/ long" and line[1].startswith("+1.50")


def test_each_block_names_its_comparisons() -> None:
    """Otherwise two metrics of one table would have lines of the same name."""
    cells = [
        (own(key, "CAM", block=block), measured(*values))
        for block in ("cosine", "rank")
        for key, values in (("base", (1.0, 2.0)), ("half", (3.0, 4.5)))
    ]
    names = [line[0] for line in comparisons(judge(cells))[1:]]
    assert names == ["cosine: w/ half against w/ base", "rank: w/ half against w/ base"]


def test_published_tables_and_unmeasured_ones_have_none() -> None:
    assert comparisons(entries()) == []
    assert comparisons(judge([(e.cell, None) for e in own_entries()])) == []
    only = [(e.cell, e.measured if e.cell.key == "base" else None) for e in own_entries()]
    assert comparisons(judge(only)) == []


def test_every_format_shows_the_same_comparison() -> None:
    text = comparisons(own_entries())[1][1]
    assert text in markdown(own_entries())
    assert text in page("x", [Section("x", entries=own_entries())])
    assert re.search(r"w/ half against w/ base & \+1\.17 \[", latex(own_entries()))
    read = [line for line in latex(own_entries()).splitlines() if not line.startswith("%")]
    assert "".join(read).isascii()
