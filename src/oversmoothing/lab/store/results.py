"""The results of a run: ``result.json``, its numbers by the name of a metric, and its summary."""

import json
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from oversmoothing.errors import InputError, meant
from oversmoothing.lab.store.files import OUTPUTS, read_or_set_aside, write_text
from oversmoothing.lab.store.identity import facts_of, short_name

NEAR = 1.02  # up to this multiple of the chance level, a network counts as no better
SAME = {"roc_auc": "one score for all", "miou": "one label for all"}  # answer of chance, by metric


def read_result(folder: Path) -> dict[str, Any] | None:
    """Reads ``result.json`` of a run folder; None if it is missing or damaged."""
    path = Path(folder) / "result.json"
    return read_or_set_aside(path, lambda path: json.loads(path.read_text("utf-8")))


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes ``result.json``."""
    text = json.dumps(result, indent=1) + "\n"
    write_text(Path(folder) / "result.json", text, OUTPUTS)


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
    return f"{name}: {', '.join(shown)} ({counted(len(seeds), 'seed')}, {time})"


def setting(config: DictConfig, result: dict[str, Any], folder: Path) -> str:
    """Returns task, data and method of a run, its chance level, and its folder, in one line."""
    by_seed: dict[str, dict[str, float]] = result.get("chance", {})
    levels = {key for own in by_seed.values() for key in own}
    network = short_name(config.backbone or {})
    words = [", ".join(filter(None, [*facts_of(config).values(), network]))]
    for metric in sorted(levels):
        level = statistics.fmean(own[metric] for own in by_seed.values())
        reached = statistics.fmean(result["seeds"][seed][metric] for seed in by_seed)
        near = reached < level * NEAR
        answer = next((SAME[end] for end in SAME if metric.endswith(end)), "the largest class")
        words.append(f"{'no better than ' * near}chance, {answer} ({level:.2f})")
    return f"    {'; '.join(words)} -> {folder}"


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


def counted(number: int, what: str) -> str:
    """Returns ``1 run`` or ``2 runs``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
