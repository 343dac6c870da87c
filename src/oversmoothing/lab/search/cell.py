"""The search for the best settings of one cell of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.start import Start
from oversmoothing.lab.search.batch import DIVERGED, Work, without_test
from oversmoothing.lab.search.files import read_best, write_best, write_trials
from oversmoothing.lab.search.halving import Rung, Search, best, score
from oversmoothing.lab.search.space import Space
from oversmoothing.lab.store.locks import locked


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
        """Returns the checked configurations."""
        own = [*self.words, *self.space.overrides, *self.extra]
        return [config for words in self._drawn for config in configs([*own, *words])]

    def run(self, most: int | None = None, fresh: bool = True) -> str:
        """Searches, writes trials and best settings, and returns a line about the result.

        Args:
            most: see ``Search``.
            fresh: search again even if another process has found the settings in the meantime.

        Raises:
            Busy: another process searches for the settings of this cell.
            InputError: settings that cannot be trained.
        """
        every = self.configs()
        folder = Path(every[0].paths.outputs) / "tuning" / self.name
        with locked(folder):
            if self.done and not fresh:
                return f"{self.name}: found by another process"
            search = Search(
                work_of(every),
                self.space.seeds,
                self.space.rungs,
                most,
                folder / "checkpoint.pt",
                every[0].checkpoint_seconds,
                partial(self._write, every),
            )
            winner = search.run()
            found = score(search.results[-1][winner])
            self._keep(winner, found, search.seconds_spent, every[0].matmul)
            (folder / "checkpoint.pt").unlink(missing_ok=True)
        shown = " ".join(self._drawn[winner]) or "the settings of the experiment"
        return f"{self.name}: {found:.2f} % of the validation nodes with {shown}"

    def _keep(self, winner: int, found: float, seconds: float, matmul: str) -> None:
        """Writes the best settings."""
        settings = {
            "trial": winner,
            "val_accuracy": round(found, 2),
            "seconds": round(seconds),
            "matmul": matmul,
            "space": self.space.fingerprint(self.row),
            "overrides": self._settings(winner),
        }
        write_best(self.folder, (self.block, self.row, self.column), settings)

    def _settings(self, trial: int) -> list[str]:
        """Returns the overrides of the final runs with the settings of a configuration."""
        seeds = ",".join(map(str, self.space.final_seeds))
        return [*self.space.overrides, *self._drawn[trial], f"seeds=[{seeds}]"]

    @property
    def _drawn(self) -> list[list[str]]:
        return self.space.drawn(self.row)

    def _write(self, every: Sequence[DictConfig], results: Sequence[Rung]) -> None:
        """Writes the results of the configurations so far."""
        names = [*(f"after {rung}" for rung in self.space.rungs), "end"]
        rungs = dict(zip(names, results))
        lines: list[dict[str, Any]] = []
        for trial, config in enumerate(every):
            drawn = dict(word.split("=", 1) for word in self._drawn[trial])
            values = {key: _value(config, key, drawn) for key in self.space.values(self.row)}
            scores = {name: _text(rungs.get(name, {}).get(trial)) for name in names}
            lines.append({"trial": trial, **values, **scores})
        name = "-".join(filter(None, (self.block, self.row))).lower()
        write_trials(self.folder / f"{name}.csv", self.column, lines)
        leader = score(results[-1][best(results[-1])[0]])
        print(f"{self.name}: {names[len(results) - 1]}: best {leader:.2f} %", flush=True)


def work_of(every: Sequence[DictConfig]) -> Work:
    """Returns the data that the batches of a search share; the graph has no test labels."""
    start = Start(every[0])
    graph = without_test(start.parts.data).to(start.device)
    return Work(every, start.task, graph, start.device)


def _value(config: DictConfig, key: str, drawn: dict[str, str]) -> Any:
    """Returns the value of a key in a configuration; for a group, the drawn option."""
    value = OmegaConf.select(config, key)
    return drawn.get(key, "") if value is None or OmegaConf.is_config(value) else value


def _text(of_seeds: list[list[float]] | None) -> str:
    """Formats the accuracies of the seeds, with ``diverged`` if a loss was not finite."""
    if of_seeds is None:
        return ""
    return " ".join("diverged" if v == DIVERGED else f"{v:.2f}" for v, _ in of_seeds)
