"""Successive halving (Jamieson, Talwalkar, AISTATS 2016) over batches of networks."""

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from oversmoothing.errors import InputError
from oversmoothing.lab.search.batch import DIVERGED, Batch, Member, Work
from oversmoothing.lab.search.networks import BUILT, shape, stacked
from oversmoothing.lab.search.side_by_side import train, workers
from oversmoothing.lab.store import tensors
from oversmoothing.lab.store.checkpoints import write
from oversmoothing.lab.store.files import read_or_set_aside
from oversmoothing.lab.store.free_memory import free_memory
from oversmoothing.lab.tasks.nodes.memory import estimate

SHARE = 0.4  # of the free memory for all batches that are trained at a time; two searches fit
ON_CPU = 12  # networks; with more, activations do not fit into the caches, and nothing is gained
Rung = dict[int, list[list[float]]]  # configuration -> for each seed, accuracy and epoch


class Search:
    """Trains all configurations and halves their number after every rung.

    Args:
        work: configurations, graph and device.
        seeds: of every configuration.
        rungs: epochs after which the better half continues.
        most: largest number of networks that are trained together; None: as many as fit into
            memory, and on a CPU at most ``ON_CPU``.
        checkpoint: file of the state; a search continues from it.
        seconds: shortest time between two checkpoints.
        told: called after each rung with the results of all rungs.

    Attributes:
        results: for each finished rung, and finally for the end, the scores of the configurations
            that reached it.

    Raises:
        InputError: a rung is before the first evaluation; also see ``Batch``.
    """

    def __init__(
        self,
        work: Work,
        seeds: Sequence[int],
        rungs: Sequence[int],
        most: int | None = None,
        checkpoint: Path | None = None,
        seconds: float = 300.0,
        told: Callable[[list[Rung]], None] = lambda rungs: None,
    ) -> None:
        self.work, self.seeds, self.rungs = work, seeds, [*rungs, _last(work)]
        self.checkpoint, self.seconds, self.told = checkpoint, seconds, told
        self.results: list[Rung] = []
        self._saving = Lock()
        self.spent, self._began, self._saved = 0.0, time.monotonic(), time.monotonic()
        self._require_evaluations()
        if not self._resumed():
            self.batches = [Batch(work, members) for members in divided(work, seeds, most)]

    def run(self) -> int:
        """Returns the number of the best configuration.

        Raises:
            InputError: no configuration has a finite loss.
        """
        while len(self.results) < len(self.rungs):
            train(self.batches, self.rungs[len(self.results)], self._tick)
            rung = self._scores()
            self.results.append(rung)
            better = best(rung)[: math.ceil(len(rung) / 2)]
            if len(self.results) < len(self.rungs):
                for batch in self.batches:
                    batch.keep([member for member in batch.members if member.trial in better])
            self.told(self.results)
            self._save()
        winner = best(self.results[-1])[0]
        if score(self.results[-1][winner]) == DIVERGED:
            raise InputError("training diverges with every configuration; lower trainer.lr")
        return winner

    @property
    def seconds_spent(self) -> float:
        """Duration of the search, including attempts that were interrupted."""
        return self.spent + time.monotonic() - self._began

    def _require_evaluations(self) -> None:
        often = max(config.trainer.eval_every for config in self.work.configs)
        if often > self.rungs[0]:
            raise InputError(
                f"rungs: nothing is evaluated in the first {self.rungs[0]} epochs; raise the first "
                f"rung in space.yaml to trainer.eval_every={often}, or lower trainer.eval_every"
            )

    def _scores(self) -> Rung:
        """Returns the scores of the configurations that are still in the search."""
        every = {m: value for batch in self.batches for m, value in batch.scores.items()}
        trials = range(len(self.work.configs))
        if self.results:
            last = self.results[-1]
            trials = sorted(best(last)[: math.ceil(len(last) / 2)])
        return {t: [[*every[Member(t, seed)]] for seed in self.seeds] for t in trials}

    def _tick(self) -> None:
        with self._saving:
            if time.monotonic() - self._saved >= self.seconds:
                self._save()

    def _save(self) -> None:
        self._saved = time.monotonic()
        if self.checkpoint is not None:
            rungs = [[[t, *map(list, s)] for t, s in rung.items()] for rung in self.results]
            state = {"of": self._name(), "results": rungs, "spent": self.seconds_spent}
            write(self.checkpoint, {**state, "batches": [b.state_dict() for b in self.batches]})

    def _resumed(self) -> bool:
        """Loads the checkpoint if there is one; sets a checkpoint of another search aside."""
        state = self.checkpoint and read_or_set_aside(self.checkpoint, tensors.load)
        if not state:
            return False
        if state["of"] != self._name():
            aside = self.checkpoint.replace(self.checkpoint.with_suffix(".other"))
            warnings.warn(
                f"{self.checkpoint} is of a search with other settings or of an earlier version; "
                f"it is kept as {aside.name}, and this search starts anew",
                stacklevel=2,
            )
            return False
        self.results = [{trial: scores for trial, *scores in rung} for rung in state["results"]]
        self.spent = state["spent"]
        self.batches = [Batch.load(self.work, own) for own in state["batches"]]
        return True

    def _name(self) -> list[Any]:
        """Returns the content that identifies this search in a checkpoint."""
        keys = (*BUILT, "trainer", "matmul")
        own = [[shape(c), *(str(c.get(key)) for key in keys)] for c in self.work.configs]
        return [own, [*self.seeds], self.rungs, self.work.device.type]


def best(rung: Rung) -> list[int]:
    """Sorts configurations by descending score; equal ones in the order of their draw."""
    return sorted(rung, key=lambda trial: (-score(rung[trial]), trial))


def score(of_seeds: list[list[float]]) -> float:
    """Returns the mean accuracy over the seeds, or ``DIVERGED`` if one of them has diverged."""
    values = [value for value, _ in of_seeds]
    return DIVERGED if DIVERGED in values else statistics.fmean(values)


def divided(work: Work, seeds: Sequence[int], most: int | None) -> Iterator[list[Member]]:
    """Divides the networks into batches of equal shape that fit into the free memory.

    All seeds of a configuration are in one batch.
    """
    groups: dict[str, list[int]] = {}
    for trial, config in enumerate(work.configs):
        groups.setdefault(shape(config), []).append(trial)
    for trials in groups.values():
        number = max(1, (most or fitting(work, trials[0])) // len(seeds))
        parts = math.ceil(len(trials) / number)
        for part in range(parts):  # sizes differ by one at most
            own = trials[part * len(trials) // parts : (part + 1) * len(trials) // parts]
            yield [Member(trial, seed) for trial in own for seed in seeds]


def fitting(work: Work, trial: int) -> int:
    """Returns how many networks like those of a configuration to train in a batch."""
    free = free_memory(work.device)
    most = ON_CPU if work.device.type == "cpu" else 10**6
    if free is None:
        return most
    made = stacked([work.configs[trial]], work.graph, work.device)
    given = work.graph, made.backbone, made.aggregators
    one, two = estimate(*given, 1), estimate(*given, 2)
    own = SHARE * free / workers(work.device, len(work.configs))
    return min(most, max(1, int(1 + (own - one) / (two - one))))


def _last(work: Work) -> int:
    return max(config.trainer.epochs for config in work.configs)
