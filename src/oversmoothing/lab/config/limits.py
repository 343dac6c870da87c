"""Limits of sizes and counts; the upper ones are far above what a workstation can compute.

They catch typing errors such as an extra zero, which could exhaust the memory or run for hours.
``OVERSMOOTHING_LIMITS=off`` lifts the upper ones.
"""

import math
import os
from collections.abc import Iterator
from typing import Any

MOST = {  # last name of a key -> largest value
    "depth": 10_000,
    "hidden": 1_000_000,
    "dim": 1_000_000,
    "ffn": 1_000_000,
    "num_tokens": 1_000_000,
    "num_bases": 1_000_000,
    "num_slots": 1_000_000,
    "num_nodes": 1_000_000_000,
    "features": 10_000_000,
    "num_train": 100_000_000,
    "num_val": 100_000_000,
    "batch_size": 1_000_000,
    "batch": 1_000_000,
    "draws": 1_000_000,
    **dict.fromkeys(("size", "ms_size", "crop", "resize", "image_size"), 8_192),  # pixels
}
LEAST = {"seconds": 0}
LARGEST = 2**63 - 1  # largest whole number in torch
COUNT = 1_000_000  # of anything that an option of a script counts
COMBINATIONS = 10_000  # of a sweep
SEEDS = 10_000
WAY_OUT = "OVERSMOOTHING_LIMITS=off lifts the limit"


def are_on() -> bool:
    """Whether limits are checked."""
    return os.environ.get("OVERSMOOTHING_LIMITS") != "off"


def processors(least: int = 64) -> int:
    """Returns the upper limit of the number of threads or processes of this machine."""
    return max(least, 4 * (os.cpu_count() or 1))


def beyond(prefix: str, node: Any) -> Iterator[str]:
    """Yields one line for every number in a config that is above its limit.

    Args:
        prefix: of the keys of the node, such as ``backbone.``.
        node: part of a config, in plain types.
    """
    items = node.items() if isinstance(node, dict) else ()
    for name, value in items:
        key = f"{prefix}{name}"
        most = processors() if name == "workers" else MOST.get(name, LARGEST)
        most = most if are_on() else LARGEST
        if isinstance(value, int) and not -LARGEST <= value <= most:
            hint = f"; {WAY_OUT}" if most != LARGEST else ""
            yield f"{key}: expected at most {most:,}, got {_shown(value)}{hint}"
        elif isinstance(value, (int, float)) and value < (least := LEAST.get(name, -math.inf)):
            yield f"{key}: expected {least} or more, got {value}"
        yield from beyond(f"{key}.", value)


def _shown(number: int) -> str:
    return f"{number:,}" if abs(number) < 10**30 else f"a number of {len(str(number))} digits"
