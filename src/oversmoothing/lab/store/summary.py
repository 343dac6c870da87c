"""Summarises a result in one line."""

import math
import statistics
from typing import Any


def summary(result: dict[str, Any], already: bool, swept: str = "") -> str:
    """Returns name, numbers as mean ± std over seeds (ddof = 1), and time in one line.

    Args:
        result: content of ``result.json``.
        already: whether it was there before the command.
        swept: overrides that tell the run from the others of a sweep.
    """
    seeds = list(result["seeds"].values())
    values = {key: [seed.get(key) for seed in seeds] for key in (seeds[0] if seeds else ())}
    numbers = {k: v for k, v in values.items() if all(isinstance(x, (int, float)) for x in v)}
    shown = [f"{key} {_spread(over_seeds)}" for key, over_seeds in numbers.items()]
    shown = shown or ["no single number: see its result.json"]
    time = "already there" if already else f"{result['seconds']:.0f} s"
    name = f"{result['name']} {swept}".rstrip()
    return f"{name}: {', '.join(shown)} ({_counted(len(seeds), 'seed')}, {time})"


def _spread(values: list[float]) -> str:
    if isinstance(values[0], bool):
        shared = len(set(values)) == 1
        return str(values[0]).lower() if shared else f"true for {sum(values)} of {len(values)}"
    if len(set(values)) == 1 and isinstance(values[0], int):
        return str(values[0])  # equal counts
    mean = statistics.fmean(values)
    if not math.isfinite(mean):
        return str(mean)
    return f"{mean:.2f} ± {statistics.stdev(values):.2f}" if len(values) > 1 else f"{mean:.2f}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
