"""What a table still needs, how long that may take, and doing it."""

import math
from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf

from oversmoothing.report.collect import Planned
from oversmoothing.store.identity import run_id


def estimate(wanted: Planned, planned: Sequence[Planned]) -> float | None:
    """Seconds that a run may take, from those that have a result; None where none is near.

    More layers and iterations take longer in proportion; the run of the same block and row whose
    size is closest serves, or of the same row in another block, or of any row.
    """
    done = [p for p in planned if p.result]
    same_row = [p for p in done if p.cell.key == wanted.cell.key]
    same_block = [p for p in same_row if p.cell.block == wanted.cell.block]
    near = same_block or same_row or done
    if not near:
        return None
    size = _size(wanted.config)
    closest = min(near, key=lambda p: abs(_size(p.config) - size))
    share = len(wanted.config.seeds) / max(1, len(closest.result["seeds"]))
    return closest.result["seconds"] * size / _size(closest.config) * share


def distinct(planned: Sequence[Planned]) -> list[Planned]:
    """One for each run: the cells of a row may share theirs."""
    return [*{(run_id(p.config), *p.config.seeds): p for p in reversed(planned)}.values()][::-1]


def describe(missing: Sequence[Planned], planned: Sequence[Planned]) -> str:
    """A line a missing run, and the sum of the estimates."""
    missing = distinct(missing)
    if not missing:
        return "nothing is missing"
    times = [estimate(p, planned) for p in missing]
    lines = [f"{_time(seconds):>9}  {p.cell.command}" for p, seconds in zip(missing, times)]
    known = [seconds for seconds in times if seconds is not None]
    total = f"{_time(sum(known))} for {len(known)} of them" if known else "no run to estimate from"
    return "\n".join([*lines, f"{len(missing)} runs are missing; {total}, one after the other"])


def _size(config: DictConfig) -> int:
    """Layers times iterations, as far as they are options."""
    keys = ("backbone.depth", "trainer.iterations")
    return math.prod(OmegaConf.select(config, key) or 1 for key in keys)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
