"""Claims as data: an entry of ``results/claims.yaml`` has a statement and the rule that judges it.

Two rules compare cells of a table, ``compare`` (paired, seed by seed) and ``rows`` (cell by cell).
``read`` names a function of this package that reads recorded results, and ``compute`` one that
runs a small experiment. ``not_run`` says why there is neither.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from yaml import YAMLError

from oversmoothing.errors import InputError, Problems, reason_of
from oversmoothing.lab.papers.claims.evidence import Cells, Evidence, NotRecordedError
from oversmoothing.lab.papers.claims.rules import (
    UNCLEAR,
    Finding,
    Pair,
    Verdict,
    against,
    differences,
    judged,
    little,
    pairs,
    share,
    tendency,
    weakest,
)
from oversmoothing.lab.report.verdict import Comparison, Measured, compare

OTHERS = "Claims of other papers"  # in place of a paper: claims of papers that have no page here
OWN = "Our questions"  # in place of a paper: a question that no paper's claim answers
SMALL = "small runs"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Compare(Strict):
    """Judges whether one cell is higher than another, by paired t-tests over their common seeds.

    Args:
        table, reading: where the cells are.
        pairs: label (which may be empty) -> ``first > second``. Each is ``row``, or ``row|column``.
        column: of the cells that name none.
        within: instead, whether the 95 % interval lies within ± these points.
        open: why a difference decides nothing, such as a training that has not converged.
        text: of the finding, with ``{share}``, ``{each}`` and ``{means}``, those of the seconds.
        between: stands between a label and its numbers.
        n: text of the numbers of seeds, with ``{n}`` and ``{cells}`` (``5 seeds per cell``).
    """

    table: str
    pairs: dict[str, str]
    text: str
    reading: str = ""
    column: str = ""
    within: float | None = None
    open: str = ""
    between: str = ": "
    n: str = "{n} seeds"

    def finding(self, evidence: Evidence) -> Finding:
        cells = evidence.measured(self.table, self.reading)
        sides = {label: self._sides(cells, pair) for label, pair in self.pairs.items()}
        found = {label: compare(*both) for label, both in sides.items()}
        if self.within is None:
            cases = judged(found.values())
        else:
            cases = [little(one, self.within) for one in found.values()]
        texts = [f"{label}{self.between * bool(label)}{c.text}" for label, c in found.items()]
        bases = dict.fromkeys(f"{base.mean:.1f}" for _, base in sides.values())
        counted = share(cases, "comparisons")
        text = self.text.format(share=counted, each="; ".join(texts), means=", ".join(bases))
        verdict = tendency(cases)
        if self.open and verdict is not Verdict.HOLDS:
            verdict, text = Verdict.UNDECIDED, f"{text}; {self.open}"
        return Finding(verdict, text, self._seeds(cells, [*found.values()]))

    def _sides(self, cells: Cells, pair: str) -> list[Measured]:
        found = []
        for side in pair.split(" > "):
            row, _, column = side.partition("|")
            found.append(cells["", row, column or self.column])
        return found

    def _seeds(self, cells: Cells, found: list[Comparison]) -> str:
        ends = dict.fromkeys(str(of(one.n for one in found)) for of in (min, max))
        return self.n.format(n=" to ".join(ends), cells=cells.seeds)


class Rows(Strict):
    """Judges whether a row is above (or below) others, by Welch's t-test in every common cell.

    Args:
        table, reading: where the rows are.
        row: key of the row.
        above, below: key of another row -> its name in the text. Each must hold.
        beside: as ``above``, but only told.
        columns: of the cells; default: all.
        everywhere: the claim is about all cells and not a tendency.
        together: the cells of all other rows are cases of one claim.
        text: for each other row, with ``{name}``, ``{share}`` and ``{points}``.
        what: name of the cells in ``{share}``.
    """

    table: str
    row: str
    text: str
    reading: str = ""
    above: dict[str, str] = {}
    below: dict[str, str] = {}
    beside: dict[str, str] = {}
    columns: tuple[str, ...] = ()
    everywhere: bool = False
    together: bool = False
    what: str = "cells"

    def finding(self, evidence: Evidence) -> Finding:
        cells = evidence.measured(self.table, self.reading)
        found = against(cells, self.row, self.above or self.below, self.columns)
        if not any(found.values()):
            raise NotRecordedError(
                f"{self.table}: no cell of {self.row} is run beside another row; "
                f"`oversmoothing table {self.table}` runs it"
            )
        groups = [self._cases(each) for each in found.values()]
        groups = [sum(groups, [])] if self.together else groups
        verdict = weakest(tendency(cases, self.everywhere) for cases in groups)
        told = found | {row: pairs(cells, self.row, row, self.columns) for row in self.beside}
        names = self.above | self.below | self.beside
        texts = [self._told(names[row], each) for row, each in told.items() if each]
        return Finding(verdict, "; ".join(texts), f"{cells.seeds}; {UNCLEAR}")

    def _cases(self, found: list[Pair]) -> list[bool | None]:
        higher = [pair.above for pair in found]
        return [None if case is None else not case for case in higher] if self.below else higher

    def _told(self, name: str, found: list[Pair]) -> str:
        counted = share(self._cases(found), self.what)
        return self.text.format(name=name, share=counted, points=differences(found))


class Claim(Strict):
    """A statement of a paper, and how it is judged: by one of the last five.

    Args:
        paper: its short name, ``OTHERS``, or ``OWN`` for a statement of ours.
        name: unique over all papers.
        place: position in the paper.
        statement: the claim in our words.
        experiment: the experiment, also for a claim that is not run.
        command: reproduces the numbers; default: `make claims` with the name.
        scale: ``SMALL`` if the network, the data or the training is far smaller than the paper's.
        options: arguments of the function that ``read`` or ``compute`` names.
    """

    paper: str
    name: str
    place: str
    statement: str
    experiment: str
    command: str = ""
    scale: Literal["", "small runs"] = ""
    compare: Compare | None = None
    rows: Rows | None = None
    read: str = ""
    compute: str = ""
    not_run: str = ""
    options: dict[str, Any] = Field(default={})

    @model_validator(mode="after")
    def _one_rule(self) -> "Claim":
        rules = ("compare", "rows", "read", "compute", "not_run")
        if sum(bool(getattr(self, rule)) for rule in rules) != 1:
            raise ValueError(f"expected one of {', '.join(rules)}")
        if self.read or self.compute:
            evidence = (None,) if self.read else ()
            try:
                inspect.signature(self._function).bind(*evidence, **self.options)
            except (ImportError, AttributeError, TypeError) as error:
                raise ValueError(f"{self.read or self.compute}: {error}") from None
        return self

    @cached_property
    def _function(self) -> Callable[..., Finding]:
        module, _, name = (self.read or self.compute).partition(".")
        return getattr(importlib.import_module(f"{__package__}.{module}"), name)

    def finding(self, evidence: Evidence) -> Finding:
        """Returns the finding; if results or data are missing, it is "not run" with the reason.

        Small runs cannot contradict a paper: such a claim is "not reproduced".
        """
        if self.not_run:
            return Finding(Verdict.NOT_RUN, self.not_run, "")
        try:
            found = self._judged(evidence)
        except NotRecordedError as error:
            return Finding(Verdict.NOT_RUN, str(error), "")
        if self.scale and self.paper != OWN and found.verdict is Verdict.CONTRADICTED:
            return replace(found, verdict=Verdict.NOT_REPRODUCED)
        return found

    def _judged(self, evidence: Evidence) -> Finding:
        if rule := self.compare or self.rows:
            return rule.finding(evidence)
        given = (evidence,) if self.read else ()
        return self._function(*given, **self.options)


def load(path: Path) -> list[Claim]:
    """Reads the claims, in the order of the file.

    Raises:
        InputError: the file is missing or not valid YAML (duplicate keys included).
        Problems: wrong entries, a line for each mistake.
    """
    try:
        papers = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, YAMLError) as error:
        raise InputError(f"{path}: cannot be read: {reason_of(error)}") from error
    claims, wrong = [], []
    for paper, entries in papers.items():
        for name, entry in entries.items():
            try:
                claims.append(Claim(paper=paper, name=name, **entry))
            except ValidationError as error:
                wrong += _lines(f"{path}: {name}", error)
    if wrong:
        raise Problems(wrong)
    return claims


def _lines(where: str, error: ValidationError) -> Iterator[str]:
    for each in error.errors():
        key = ".".join(map(str, each["loc"]))
        yield f"{where}{'.' * bool(key)}{key}: {each['msg']}"
