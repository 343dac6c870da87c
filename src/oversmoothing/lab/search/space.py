"""The search space of a table, and the configurations that are drawn from it."""

import hashlib
import itertools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.config.types import argument_problems

Values = dict[str, list[Any]]


@dataclass(frozen=True)
class Space:
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

    trials: int
    rungs: list[int]
    seeds: list[int]
    final_seeds: list[int]
    common: dict = field(default_factory=dict)
    methods: dict = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    draw: int = 0

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise InputError(f"trials: expected 1 or more, got {self.trials}")
        for name in ("seeds", "final_seeds"):
            if not (own := getattr(self, name)) or len(set(own)) < len(own):
                raise InputError(f"{name}: expected one or more seeds, each once, got {own}")
        if sorted(set(self.rungs)) != self.rungs or min(self.rungs, default=1) < 1:
            raise InputError(f"rungs: expected epochs in rising order, got {self.rungs}")
        if shared := set(self.seeds) & set(self.final_seeds):
            raise InputError(f"final_seeds: {shared} are seeds of the search, too; choose others")
        for name, values in (("common", self.common), *self.methods.items()):
            _require_lists(name, values)

    def values(self, method: str) -> Values:
        """Returns the values of each key for a method."""
        return {**self.common, **self.methods.get(method, {})}

    def fingerprint(self, method: str) -> str:
        """Hashes all settings that decide the result of a search for a method."""
        decides = [self.drawn(method), self.overrides, self.seeds, self.rungs]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:10]

    def drawn(self, method: str) -> list[list[str]]:
        """Draws the overrides of each configuration.

        Each value of a key is drawn equally often, as far as possible (a Latin hypercube). A key
        that several methods share has the same draws for all of them.
        """
        columns = [self._column(key, of_key) for key, of_key in self.values(method).items()]
        return [[], *([*words] for words in zip(*columns))] if columns else [[]]

    def _column(self, key: str, values: list[Any]) -> list[str]:
        drawn = [*itertools.islice(itertools.cycle(values), self.trials - 1)]
        random.Random(f"{self.draw} {key}").shuffle(drawn)
        return [f"{key}={'null' if value is None else value}" for value in drawn]


def _require_lists(name: str, values: Any) -> None:
    """Checks that each key of a method has a list of values."""
    if not isinstance(values, dict):
        raise InputError(f"{name}: expected keys of the config with lists of values, got {values}")
    for key, of_key in values.items():
        if not isinstance(of_key, list) or not of_key:
            raise InputError(f"{name}: {key}: expected a list of values, got {of_key!r}")


def read_space(path: Path) -> Space:
    """Reads a search space.

    Raises:
        InputError: the file does not exist, or does not have the form of ``Space``.
    """
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        why = reason_of(error)
        raise InputError(f"{path}: cannot be read: {why}; correct or restore it") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected `key: value` lines")
    if problems := argument_problems(f"{path}: ", Space, content):
        raise InputError(problems[0])
    try:
        return Space(**content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
