"""Grids of γ for the simulations."""

import inspect
import math
from collections.abc import Callable
from functools import partial

from torch import Tensor

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.errors import InputError

Factories = list[Callable[..., Aggregator]]
MOST = 100_000
Gammas = list[float] | str | None


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
