"""The files of a search: its space, all its configurations as CSV, and the best settings as YAML.

A folder ``results/tuning/<table>`` holds ``space.yaml``, which ``Space`` describes; one CSV for
each data set and method, with a line for each configuration; and ``best.yaml``, with the settings
of each cell.
"""

import csv
import hashlib
import io
import itertools
import json
import random
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from annotated_types import Len
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, PositiveInt, ValidationError, model_validator

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.files import alone, read_csv, write_text

Best = dict[str, dict[str, dict[str, dict[str, Any]]]]  # block -> row -> column -> settings
BEST = "best.yaml"
Value = bool | int | float | str | None
Values = dict[str, Annotated[list[Value], Len(1)]]  # key of the config -> its values


class Space(BaseModel, extra="forbid", frozen=True):
    """The settings that a search tries, and its length.

    Args:
        trials: number of configurations of each search. The first is that of the experiment itself.
        rungs: epochs after which the better half of the configurations continues, ascending.
        seeds: of every configuration; their mean validation accuracy is its score.
        final_seeds: of the runs with the best settings; no search uses them.
        overrides: for all configurations and for the final runs.
        common: key of the config -> values, for all methods.
        methods: the same for single methods, by the key of the table's row.
        draw: seed of the draws.
    """

    trials: PositiveInt
    rungs: list[PositiveInt]
    seeds: Annotated[list[int], Len(1)]
    final_seeds: Annotated[list[int], Len(1)]
    common: Values = {}
    methods: dict[str, Values] = {}
    overrides: list[str] = []
    draw: int = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if sorted(set(self.rungs)) != self.rungs:
            raise ValueError(f"rungs: expected epochs in rising order, got {self.rungs}")
        every = [*self.seeds, *self.final_seeds]
        if len(set(every)) < len(every):
            raise ValueError(
                "final_seeds: expected seeds that the search does not use, and each seed once, got "
                f"{self.final_seeds} beside seeds: {self.seeds}"
            )
        return self

    def values(self, method: str) -> dict[str, list[Value]]:
        """Returns the values of each key for a method."""
        return {**self.common, **self.methods.get(method, {})}

    def fingerprint(self, method: str) -> str:
        """Hashes all settings that decide the result of a search for a method."""
        drawn = [words_of(settings) for settings in self.drawn(method)]
        decides = [drawn, self.overrides, self.seeds, self.rungs]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:10]

    def drawn(self, method: str) -> list[dict[str, Value]]:
        """Draws the settings of each configuration; those of the first are empty.

        Each value of a key is drawn equally often, as far as possible (a Latin hypercube). A key
        that several methods share has the same draws for all of them.
        """
        columns = {key: self._column(key, own) for key, own in self.values(method).items()}
        return [{}, *(dict(zip(columns, row)) for row in zip(*columns.values()))]

    def _column(self, key: str, values: list[Value]) -> list[Value]:
        drawn = [*itertools.islice(itertools.cycle(values), self.trials - 1)]
        random.Random(f"{self.draw} {key}").shuffle(drawn)
        return drawn


def words_of(settings: dict[str, Value]) -> list[str]:
    """Returns settings as overrides of the command line."""
    return [f"{key}={'null' if value is None else value}" for key, value in settings.items()]


def read_space(path: Path) -> Space:
    """Reads a search space.

    Raises:
        InputError: the file does not exist, or does not have the form of ``Space``.
    """
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
        why = reason_of(error)
        raise InputError(f"{path}: cannot be read: {why}; correct or restore it") from error
    try:
        return Space.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ": ".join([*map(str, first["loc"]), first["msg"].removeprefix("Value error, ")])
        raise InputError(f"{path}: {place}") from None


def read_best(folder: Path) -> Best:
    """Reads the best settings; empty if there are none yet."""
    path = folder / BEST
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_best(folder: Path, place: tuple[str, str, str], settings: dict[str, Any]) -> None:
    """Adds the best settings of a cell, or replaces them.

    Args:
        folder: of the search.
        place: block, row and column of the cell.
        settings: ``overrides``, ``trial`` and further information.
    """
    block, row, column = place
    with alone(folder / BEST):
        every = read_best(folder)
        every.setdefault(block, {}).setdefault(row, {})[column] = settings
        cells = every[block][row]
        every[block][row] = {key: cells[key] for key in sorted(cells, key=_by_depth)}
        text = yaml.safe_dump(every, default_flow_style=None, sort_keys=False, width=1000)
        write_text(folder / BEST, text)


def write_trials(path: Path, column: str, lines: list[dict[str, Any]]) -> None:
    """Writes the configurations of a cell into the CSV of its data set and method.

    Args:
        path: of the CSV; lines of other cells are kept.
        column: of the table.
        lines: one for each configuration.
    """
    with alone(path):
        known = read_csv(path) if path.exists() else []
        others = [own for own in known if own["column"] != column]
        every = others + [{"column": column, **own} for own in lines]
        every.sort(key=lambda own: (_by_depth(own["column"]), int(own["trial"])))
        file = io.StringIO()
        names = ["column", *lines[0]]
        writer = csv.DictWriter(file, names, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(every)
        write_text(path, file.getvalue())


def _by_depth(column: str) -> tuple[int, str]:
    """Returns a sort key that puts L=2 before L=16."""
    return len(column), column
