"""Estimates the time of a search."""

import statistics
import time
from collections.abc import Sequence

from omegaconf import DictConfig

from oversmoothing.lab.search.batch import Batch, Member
from oversmoothing.lab.search.cell import CellSearch, work_of

STEPS = 2


def estimate(search: CellSearch) -> float:
    """Estimates the CPU seconds of a search, from two steps of one configuration of each width."""
    every = search.configs()
    work, of_width = work_of(every), {}
    for trial, config in enumerate(every):
        of_width.setdefault(config.backbone.get("hidden"), []).append(trial)
    seconds = 0.0
    for trials in of_width.values():
        batch = Batch(work, [Member(trials[0], seed) for seed in search.space.seeds])
        batch.train(1)
        began = time.process_time()
        batch.train(1 + STEPS)
        seconds += (time.process_time() - began) / STEPS * len(trials) / len(every)
    return seconds * epochs(every, search.space.rungs)


def epochs(every: Sequence[DictConfig], rungs: Sequence[int]) -> float:
    """Returns the expected epochs of all configurations, if all are equally likely to continue."""
    lengths = [config.trainer.epochs for config in every]
    bounds = [0, *rungs, max(lengths)]
    return sum(
        statistics.fmean(max(0, min(end, own) - start) for own in lengths) * len(every) / 2**rung
        for rung, (start, end) in enumerate(zip(bounds, bounds[1:]))
    )
