"""Looks up numbers in results by the name of a metric."""

import math
import statistics
from collections.abc import Iterable
from typing import Any

from oversmoothing.errors import InputError, meant


def look_up(result: dict[str, Any], metric: str, where: str) -> float:
    """Returns a number from a seed's result.

    Args:
        result: of a seed.
        metric: a key of the result; ``layers.cosine.-1`` indexes mappings and lists.
        where: beginning of the error message.

    Returns:
        The number; NaN if it is null in the result (a class that no image has).

    Raises:
        InputError: there is no such number; the message names similar keys.
    """
    found: Any = result
    for key in metric.split("."):
        keys = [*map(str, found)] if isinstance(found, dict) else []
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (LookupError, TypeError, ValueError):
            hint = f"; {meant(key, keys)}" if keys else ""
            raise InputError(f"{where}: metric {metric}: {key!r} is not there{hint}") from None
    if found is not None and not isinstance(found, (int, float)):
        raise InputError(f"{where}: metric {metric}: expected a number, got {type(found).__name__}")
    return math.nan if found is None else float(found)


def mean(result: dict[str, Any], metric: str, seeds: Iterable[int], where: str) -> float:
    """Returns the mean of a metric over seeds.

    Args:
        result: content of ``result.json``.
        metric, where: as for ``look_up``.

    Raises:
        InputError: there is no such number, or it is not finite.
    """
    found = statistics.fmean(look_up(result["seeds"][str(s)], metric, where) for s in seeds)
    if not math.isfinite(found):
        raise InputError(f"{where}: metric {metric}: expected a finite number, got {found}")
    return found
