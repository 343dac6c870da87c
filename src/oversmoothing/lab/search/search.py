"""The search for the best settings of a cell of a table.

All configurations are drawn at once, trained in stacks, and halved after every rung (successive
halving: Jamieson, Talwalkar, AISTATS 2016). The stacks hold the state: a killed search loads them.
"""

import hashlib
import json
import math
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.execute import Start
from oversmoothing.lab.search.files import Space, read_best, words_of, write_best, write_trials
from oversmoothing.lab.search.stacked import (
    BUILT,
    DIVERGED,
    Member,
    Stack,
    Work,
    require_stackable,
    shape,
    without_test,
)
from oversmoothing.lab.store.files import read_or_set_aside
from oversmoothing.lab.store.run import locked
from oversmoothing.lab.store.weights import load_tensors, save_tensors

ON_CPU = 12  # networks of a stack; with more, activations do not fit into the caches of a CPU
Rung = dict[int, list[float]]  # configuration -> accuracy of each seed


class Search:
    """Trains all configurations of a search space and halves their number after every rung.

    Args:
        work: configurations, graph and device.
        space: its seeds and rungs.
        folder: of the state, from which an interrupted search continues; None: the search is only
            kept in memory.
        most: largest number of networks in a stack; None: ``ON_CPU``, and on a GPU all of a shape.
        seconds: shortest time between two checkpoints.
        told: called after each rung with the results of all rungs so far.

    Attributes:
        results: for each finished rung, and finally for the end, the accuracies of the
            configurations that reached it.
    """

    def __init__(
        self,
        work: Work,
        space: Space,
        folder: Path | None = None,
        most: int | None = None,
        seconds: float = 300.0,
        told: Callable[[list[Rung]], None] = lambda results: None,
    ) -> None:
        self.work, self.space, self.folder = work, space, folder
        self.seconds, self.told, self.saved = seconds, told, time.monotonic()
        self.rungs = [*space.rungs, max(config.trainer.epochs for config in work.configs)]
        self.results: list[Rung] = []
        self.stacks = [Stack(work, members) for members in divided(work, space.seeds, most)]
        for number, stack in enumerate(self.stacks):
            if (path := self._state(number)) and (state := read_or_set_aside(path, load_tensors)):
                stack.load_state_dict(state)

    def run(self) -> int:
        """Returns the number of the best configuration.

        Raises:
            InputError: no configuration has a finite loss.
        """
        left = [*range(len(self.work.configs))]
        for rung in self.rungs:
            self._train(rung)
            self.results.append({trial: self._scores(trial, rung) for trial in left})
            if rung != self.rungs[-1]:
                left = better_half(self.results[-1])
                for stack in self.stacks:
                    stack.keep([member for member in stack.members if member.trial in left])
            self.told(self.results)
        reached = {trial: mean(scores) for trial, scores in self.results[-1].items()}
        best = max(left, key=lambda trial: reached[trial])  # the first of equal ones
        if reached[best] == DIVERGED:
            raise InputError("training diverges with every configuration; lower trainer.lr")
        return best

    def remove_state(self) -> None:
        """Deletes the state of a finished search."""
        if path := self._state(0):
            shutil.rmtree(path.parent, ignore_errors=True)

    def _train(self, until: int) -> None:
        for number, stack in enumerate(self.stacks):
            before = stack.epoch
            stack.train(until, partial(self._tick, number))
            if stack.epoch > before:
                self._save(number)

    def _tick(self, number: int) -> None:
        if time.monotonic() - self.saved >= self.seconds:
            self._save(number)

    def _scores(self, trial: int, until: int) -> list[float]:
        found = {member: stack for stack in self.stacks for member in stack.history}
        members = [Member(trial, seed) for seed in self.space.seeds]
        return [found[member].score(member, until)[1] for member in members]

    def _save(self, number: int) -> None:
        self.saved = time.monotonic()
        if path := self._state(number):
            save_tensors(path, self.stacks[number].state_dict())

    def _state(self, number: int) -> Path | None:
        """Returns the file with the state of a stack."""
        return self.folder and self.folder / f"stacks-{self._name}/{number}.pt"

    @cached_property
    def _name(self) -> str:
        """Hashes the content that identifies this search and its stacks."""
        keys = (*BUILT, "trainer", "matmul")
        every = [[shape(c), *(str(c.get(key)) for key in keys)] for c in self.work.configs]
        members = [[*stack.history] for stack in self.stacks]
        decides = [every, members, self.rungs, self.work.device.type, self.work.graph.checksum]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:10]


def better_half(rung: Rung) -> list[int]:
    """Returns the configurations that continue; of equal ones, those with the lower number."""
    best = sorted(rung, key=lambda trial: (-mean(rung[trial]), trial))
    return sorted(best[: math.ceil(len(best) / 2)])


def mean(of_seeds: Sequence[float]) -> float:
    """Returns the mean accuracy over the seeds, or ``DIVERGED`` if one of them has diverged."""
    return DIVERGED if DIVERGED in of_seeds else statistics.fmean(of_seeds)


def divided(work: Work, seeds: Sequence[int], most: int | None) -> Iterator[list[Member]]:
    """Divides the networks into stacks of equal shape; a stack has all seeds of a configuration."""
    if most is None:
        most = ON_CPU if work.device.type == "cpu" else len(work.configs) * len(seeds)
    groups: dict[str, list[int]] = {}
    for trial, config in enumerate(work.configs):
        groups.setdefault(shape(config), []).append(trial)
    for trials in groups.values():
        number = math.ceil(len(trials) / max(1, most // len(seeds)))
        for part in range(number):  # sizes differ by one at most
            own = trials[part * len(trials) // number : (part + 1) * len(trials) // number]
            yield [Member(trial, seed) for trial in own for seed in seeds]


@dataclass(frozen=True)
class CellSearch:
    """The search for the settings of a cell.

    Args:
        table: name of the table.
        block, row, column: of the cell; the row by its key.
        words: overrides of the experiment for this cell, without tuned ones.
        space: the search space.
        folder: of ``space.yaml``, trials and best settings.
        extra: overrides that say how to compute, such as ``device=cpu``.
    """

    table: str
    block: str
    row: str
    column: str
    words: tuple[str, ...]
    space: Space
    folder: Path
    extra: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.table, self.block, self.row, self.column)))

    @property
    def done(self) -> bool:
        """Whether the best settings are known and belong to this space.

        Settings of earlier versions have no ``space``; they must be among those that it draws.
        """
        found = read_best(self.folder).get(self.block, {}).get(self.row, {}).get(self.column)
        if found is None or not found.get("trial", 0) < len(self._drawn):
            return False
        own = self.space.fingerprint(self.row)
        if found.get("space", own) != own:
            return False
        return found["overrides"] == self._settings(found.get("trial", 0))

    def configs(self) -> list[DictConfig]:
        """Returns the checked configurations.

        Raises:
            InputError: there are mistakes in them, a stack cannot train their networks, or a rung
                is before the first evaluation.
        """
        own = [*self.words, *self.space.overrides, *self.extra]
        found = [config for drawn in self._drawn for config in configs([*own, *words_of(drawn)])]
        require_stackable(found)
        often = max(config.trainer.eval_every for config in found)
        first = [*self.space.rungs, max(config.trainer.epochs for config in found)][0]
        if often > first:
            raise InputError(
                f"rungs: nothing is evaluated in the first {first} epochs; raise the first "
                f"rung in space.yaml to trainer.eval_every={often}, or lower trainer.eval_every"
            )
        return found

    def run(self, most: int | None = None) -> str:
        """Searches, writes trials and best settings, and returns a line about the result.

        Args:
            most: see ``Search``.

        Raises:
            Busy: another process searches for the settings of this cell.
            InputError: settings that cannot be trained.
        """
        every = self.configs()
        folder = Path(every[0].paths.outputs) / "tuning" / self.name
        with locked(folder):
            if self.done:
                return f"{self.name}: found by another process"
            told, seconds = partial(self._write, every), every[0].checkpoint_seconds
            search = Search(work_of(every), self.space, folder, most, seconds, told)
            winner = search.run()
            found = mean(search.results[-1][winner])
            settings = {
                "trial": winner,
                "val_accuracy": round(found, 2),
                "seconds": round(sum(stack.seconds for stack in search.stacks)),
                "matmul": every[0].matmul,
                "space": self.space.fingerprint(self.row),
                "overrides": self._settings(winner),
            }
            write_best(self.folder, (self.block, self.row, self.column), settings)
            search.remove_state()
        shown = " ".join(words_of(self._drawn[winner])) or "the settings of the experiment"
        return f"{self.name}: {found:.2f} % of the validation nodes with {shown}"

    def _settings(self, trial: int) -> list[str]:
        """Returns the overrides of the final runs with the settings of a configuration."""
        seeds = ",".join(map(str, self.space.final_seeds))
        return [*self.space.overrides, *words_of(self._drawn[trial]), f"seeds=[{seeds}]"]

    @property
    def _drawn(self) -> list[dict[str, Any]]:
        return self.space.drawn(self.row)

    def _write(self, every: Sequence[DictConfig], results: Sequence[Rung]) -> None:
        """Writes the results of the configurations so far."""
        names = [*(f"after {rung}" for rung in self.space.rungs), "end"]
        rungs = dict(zip(names, results))
        lines = []
        for trial, (config, drawn) in enumerate(zip(every, self._drawn)):
            values = {key: _value(config, key, drawn) for key in self.space.values(self.row)}
            scores = {name: _text(rungs.get(name, {}).get(trial, [])) for name in names}
            lines.append({"trial": trial, **values, **scores})
        name = "-".join(filter(None, (self.block, self.row))).lower()
        write_trials(self.folder / f"{name}.csv", self.column, lines)
        leader = max(map(mean, results[-1].values()))
        shown = "all have diverged" if leader == DIVERGED else f"best {leader:.2f} %"
        print(f"{self.name}: {names[len(results) - 1]}: {shown}", flush=True)


def work_of(every: Sequence[DictConfig]) -> Work:
    """Returns the data that the stacks of a search share; the graph has no test labels."""
    start = Start(every[0])
    graph = without_test(start.parts.data).to(start.device)
    return Work(every, start.task, graph, start.device)


def _value(config: DictConfig, key: str, drawn: dict[str, Any]) -> Any:
    """Returns the value of a key in a configuration; for a group, the drawn option."""
    value = OmegaConf.select(config, key)
    return drawn.get(key, "") if value is None or OmegaConf.is_config(value) else value


def _text(of_seeds: Sequence[float]) -> str:
    """Formats the accuracies of the seeds, with ``diverged`` if a loss was not finite."""
    return " ".join("diverged" if value == DIVERGED else f"{value:.2f}" for value in of_seeds)
