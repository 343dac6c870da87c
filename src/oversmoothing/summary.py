"""A result in one line."""

import statistics
from typing import Any


def summary(result: dict[str, Any], already: bool) -> str:
    """Name, every number as mean ± std over seeds (ddof = 1), time, id.

    Args:
        result: content of ``result.json``.
        already: it was there before the command.
    """
    seeds = list(result["seeds"].values())
    numbers = [key for key, value in seeds[0].items() if isinstance(value, (int, float))]
    shown = [f"{key} {_spread([seed[key] for seed in seeds])}" for key in numbers]
    time = "already there" if already else f"{result['seconds']:.0f} s"
    return f"{result['name']}: {', '.join(shown)} ({len(seeds)} seeds, {time})"


def _spread(values: list[float]) -> str:
    if len(set(values)) == 1 and not isinstance(values[0], float):
        return str(values[0])  # a count, or true or false, that all seeds share
    mean = statistics.fmean(values)
    return f"{mean:.2f} ± {statistics.stdev(values):.2f}" if len(values) > 1 else f"{mean:.2f}"
