"""The demo's estimate of the time that is left."""

import pytest

from oversmoothing.lab.papers.demo_study import Part, _left

FIRST, SECOND, THIRD = (Part(name, [], seconds) for name, seconds in zip("abc", (100, 30, 20)))


@pytest.mark.parametrize(
    ("ended", "left"),
    [("b", 140), ("bc", 60 * (100 / 50 - 1)), ("a", 0), ("ab", 60 * (50 / 30 - 1))],
)
def test_the_time_left_is_that_of_the_slowest_process(ended: str, left: float) -> None:
    assert _left([[FIRST], [SECOND, THIRD]], ended, passed=60) == pytest.approx(left)
    whole = {"a": 100, "b": 30, "c": 20}
    alone = 60 * (150 / sum(whole[name] for name in ended) - 1)
    assert _left([[FIRST, SECOND, THIRD]], ended, passed=60) == pytest.approx(alone)
