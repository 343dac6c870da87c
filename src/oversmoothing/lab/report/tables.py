"""Tables: their schema, which ``results/expected/README.md`` describes, and their cells."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from yaml import YAMLError

from oversmoothing.errors import InputError, Problems, meant, reason_of
from oversmoothing.lab.search.files import Best, read_best

NOT_PRINTED = ("–", "-", "")
UNKNOWN = "?"  # printed in the paper, but unknown here
POINTS = {"points": 1.0, "fraction": 100.0}
PRINTED = re.compile(r"(?P<value>-?\d+(\.\d+)?)( *± *(?P<std>\d+(\.\d+)?))?")
Place = tuple[str, str, str]  # block, row, column
Names = tuple[str, ...]


def _row_of_texts(values: Any) -> Any:
    return [str(value).strip() for value in (values if isinstance(values, list) else [values])]


Texts = Annotated[Names, BeforeValidator(_row_of_texts)]


class Level(BaseModel):
    """Fields that any level of a table may set; for each cell the most specific level decides.

    Overrides, notes, costs and candidates of all levels are combined.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    experiment: str | None = None
    metric: str | None = None
    tolerance: float = Field(0.0, ge=0)
    runs: int = Field(0, ge=1)
    std_is: Literal["points", "fraction"] = "points"
    not_run: str | None = None
    overrides: Names = ()
    note: str = ""
    cost: float = Field(1.0, gt=0)
    candidates: tuple[Names, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _overrides_only(cls, node: Any) -> Any:
        """A list is short for the field ``overrides``."""
        return {"overrides": node} if isinstance(node, list) else node


class Row(Level):
    label: str = ""
    also: Names = ()
    baseline: str | None = None
    columns: Names = ()


class Column(Level):
    unit: str | None = None
    bold: bool = True


class Remark(Level):
    row: str
    column: str
    corrected: float | None = None


class Block(Column):
    cells: dict[str, Texts] | None = None
    remarks: tuple[Remark, ...] = ()
    group: str = ""


class Reading(Level):
    label: str
    rows: Names = ()
    columns: Names = ()
    blocks: Names = ()
    control: bool = False


class Table(Level):
    """A table.

    Args:
        columns: in the order of printing.
        ours: whether the table is measured only here, so that no cell gets a verdict.
        of: name of the table whose fields this one inherits.
        tuned: folder, below the results, of the search for the settings of each cell.
        compared: key of a row that is compared with every other row.
        tuning_seeds: over which validation accuracy chooses one of the candidates of each cell.
    """

    name: str
    title: str
    source: str
    unit: str
    rows: dict[str, Row]
    columns: dict[str, Column]
    blocks: dict[str, Block] = {}
    readings: tuple[Reading, ...] = ()
    baseline: str | None = None
    ours: bool = False
    of: str | None = None
    tuned: str | None = None
    compared: str | None = None
    tuning_seeds: tuple[int, ...] = ()


KINDS = {"rows": Row, "columns": Column, "blocks": Block, "readings": Reading, "remarks": Remark}
NO_REMARK = Remark(row="", column="")


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Args:
        block, row, column: printed names; ``key`` and ``also`` are short names of the row.
        value: the printed value; None in a table of ours, and if the value is unknown.
        std: the printed ± in the table's unit (converted if it is printed as a fraction).
        printed_std: the printed ± without conversion.
        experiment, metric: experiment to run and key of its result (``layers.cosine.-1`` indexes
            mappings and lists); a cell without one of them cannot be run.
        overrides: further overrides of ``train.py``.
        tolerance: difference that counts as agreement, in the table's unit.
        runs: number of runs behind the published mean; 0 if nothing is published.
        reason: why it is run only on request; None if it is always run.
        reading: name of the reading of the paper; empty for the plain one.
        control: whether it is a control: measured next to a published number, not compared with it.
        corrected: the correct value if the printed one is certainly a misprint.
        decimals: number of printed decimals.
        baseline: key of the row that it is compared with.
        unit: its unit if it differs from the table's.
        bold: whether the best value of its column is printed in bold.
        candidates: overrides of which validation accuracy chooses one; none in most tables.
        cost: estimated cost of a run, relative to the other cells.
    """

    about: Table = field(repr=False)
    block: str
    row: str
    key: str
    column: str
    value: float | None
    std: float | None
    experiment: str | None
    overrides: Names
    metric: str | None
    tolerance: float
    runs: int
    reason: str | None = None
    note: str = ""
    reading: str = ""
    control: bool = False
    corrected: float | None = None
    decimals: int = 2
    also: Names = ()
    baseline: str | None = None
    unit: str | None = None
    bold: bool = True
    printed_std: float | None = None
    candidates: tuple[Names, ...] = ()
    cost: float = 1.0

    @property
    def runnable(self) -> bool:
        """Whether the cell has an experiment to run."""
        return self.experiment is not None and self.metric is not None

    @property
    def command(self) -> str:
        """The command that runs it, quoted for a shell; empty if there is nothing to run.

        Of several overrides of a key, the last one counts and is shown.
        """
        last = {word.split("=", 1)[0]: word for word in self.overrides}
        words = ["python", "train.py", f"experiment={self.experiment}", *last.values()]
        return shlex.join(words) if self.runnable else ""

    @property
    def table(self) -> str:
        return self.about.name

    @property
    def label(self) -> str:
        """Name of the row, followed by the reading."""
        return f"{self.row}, {self.reading}" if self.reading else self.row

    @property
    def target(self) -> float | None:
        """The value that a measurement is compared with."""
        return self.value if self.corrected is None else self.corrected


def load(path: Path, tuned: bool = True, chosen: bool = False) -> list[Cell]:
    """Reads the cells of a file of tables, or of a folder of them, in the order of printing.

    Args:
        path: file or folder.
        tuned: use the settings found by searches; if false, those that the searches start from.
        chosen: whether to return the tables whose cells have candidates, instead of the others.

    Raises:
        InputError: a file has another form than described in ``results/expected/README.md``, or two
            tables have the same name. Each line names the file, the table and the key.
    """
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: expected files of tables (*.yaml); restore it with git")
    cells: dict[str, list[Cell]] = {}
    for file in files:
        for name, table in read(file).items():
            if name in cells:
                raise InputError(f"{file}: {name}: another file has such a table; rename one")
            cells[name] = [*_cells(table, f"{file}: {name}")]
            _require_labels(cells[name], f"{file}: {name}")
            if table.tuned and tuned:
                best = read_best(file.parent.parent / table.tuned)
                cells[name] = [_tuned(cell, best) for cell in cells[name]]
    every = [cell for table in cells.values() for cell in table]
    return [cell for cell in every if bool(cell.candidates) == chosen]


def select(
    cells: Sequence[Cell],
    table: str,
    blocks: Sequence[str] = (),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> list[Cell]:
    """Selects cells of a table by block, row and column; without names, all are selected.

    A row can be named by its key, its label or another of its names. Case does not matter.

    Raises:
        InputError: the table does not have a name; the message lists the names that it has.
    """
    chosen = having(cells, "table", [table], lambda cell: (cell.table,))
    found = having(chosen, "block", blocks, lambda cell: (cell.block,))
    found = having(found, "row", rows, lambda cell: (cell.key, cell.row, *cell.also))
    return having(found, "column", columns, lambda cell: (cell.column,))


def having(
    cells: Sequence[Cell], kind: str, wanted: Sequence[str], names: Callable[[Cell], Sequence[str]]
) -> list[Cell]:
    """Selects the cells that have one of the wanted names; all of them if none is wanted."""
    known = {name.casefold(): name for cell in cells for name in names(cell)}
    for name in wanted:
        if name.casefold() not in known:
            hint = meant(name, known.values())
            hint += "" if hint.startswith("known") else f" known: {', '.join(known.values())}"
            raise InputError(f"there is no {kind} {name!r}; {hint}")
    keys = {name.casefold() for name in wanted}
    return [c for c in cells if not keys or keys & {name.casefold() for name in names(c)}]


def read(path: Path) -> dict[str, Table]:
    """Reads tables by name; a table with ``of`` inherits the fields of the other table.

    Raises:
        InputError: the file does not exist or is not valid YAML (duplicate keys included).
        Problems: mistakes, one line each: a key is unknown or missing, a value has a wrong type,
            or a name of a row or column does not exist. A line names file, table and key.
    """
    try:
        content = _with_text_keys(OmegaConf.to_container(OmegaConf.load(path)))
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        why = reason_of(error)
        raise InputError(f"{path}: cannot be read: {why}; correct or restore it") from error
    if not isinstance(content, dict) or content.keys() != {"tables"}:
        wrong = [*content][0] if isinstance(content, dict) and content else content
        hint = meant(str(wrong), ["tables"])
        raise InputError(f"{path}: expected the single key 'tables', got {wrong!r}; {hint}")
    if not isinstance(nodes := content["tables"], dict):
        raise InputError(f"{path}: tables: expected a mapping of names to tables, got {nodes!r}")
    tables: dict[str, Table] = {}
    mistakes: dict[str, list[str]] = {}
    for name in nodes:
        try:
            tables[name] = _table(nodes, name)
        except Problems as problems:
            mistakes[name] = problems.lines
    lines = [
        f"{path}: {name}: {line}"
        for name, own in mistakes.items()
        for line in own
        if line not in mistakes.get(str(nodes[name]["of"]) if "of" in nodes[name] else "", [])
    ]
    if lines:
        raise Problems(lines)
    return tables


def _with_text_keys(node: Any) -> Any:
    if isinstance(node, dict):
        return {str(key): _with_text_keys(value) for key, value in node.items()}
    return [_with_text_keys(item) for item in node] if isinstance(node, list) else node


def _table(nodes: dict[str, Any], name: str) -> Table:
    """Builds a table; raises ``Problems``, whose lines begin with the key."""
    node = nodes[name]
    if not isinstance(node, dict):
        raise Problems([f"expected `key: value` lines, got {node!r}"])
    if of := node.get("of"):
        base = nodes.get(str(of))
        if not isinstance(base, dict) or "of" in base:
            known = meant(str(of), [key for key in nodes if key != name])
            raise Problems([f"of: there is no table {of!r} with cells; {known}"])
        node = base | node
    if "blocks" not in node:  # one block without a name
        of_block = {key: node[key] for key in ("cells", "remarks") if key in node}
        rest = {key: value for key, value in node.items() if key not in of_block}
        node = {**rest, "blocks": {"": of_block}}
    try:
        table = Table(name=name, **node)
    except ValidationError as error:
        raise Problems(_described(error)) from None
    if problems := [*_wrong_names(table)]:
        raise Problems(problems)
    return table


def _described(error: ValidationError) -> Iterator[str]:
    """Yields a line for each mistake that pydantic has found."""
    found = error.errors()
    hints: dict[tuple[Any, ...], str] = {}  # unknown keys
    for one in found:
        if one["type"] == "extra_forbidden":
            *place, key = one["loc"]
            kind = next((KINDS[word] for word in reversed(place) if word in KINDS), Table)
            hints[one["loc"]] = meant(str(key), kind.model_fields)
    for one in found:
        *place, key = one["loc"]
        where = ": ".join(map(str, _shown(one["loc"])))
        if one["loc"] in hints:
            yield f"{where}: there is no such key; {hints[one['loc']]}"
        elif one["type"] == "missing":
            misspelt = any(h == f"did you mean {key!r}?" for h in hints.values())
            if not misspelt:
                yield f"{where}: is missing; add it"
        else:
            message = one["msg"].replace("Input should be", "expected")
            yield f"{where}: {message}, got {one['input']!r}"


def _shown(place: Iterable[Any]) -> Iterator[Any]:
    """Leaves the block without a name out of a place, whose keys the file has in the table."""
    place = list(place)
    return iter(place[2:] if place[:2] == ["blocks", ""] else place)


def _wrong_names(table: Table) -> Iterator[str]:
    """Yields a line for each name of a row or column that does not exist."""
    rows, columns = [*table.rows], [*table.columns]
    wanted = [("baseline", rows, [table.baseline]), ("compared", rows, [table.compared])]
    for key, row in table.rows.items():
        wanted += [(f"rows: {key}: baseline", rows, [row.baseline])]
        wanted += [(f"rows: {key}: columns", columns, row.columns)]
        if row.columns and not table.ours:
            yield f"rows: {key}: columns: only with `ours: true`; print – in cells"
    for name, block in table.blocks.items():
        if table.ours and block.cells is not None:
            yield "cells: a table with `ours: true` has no published cells; leave one out"
        wanted += [("cells", rows, block.cells or ())]
        for remark in block.remarks:
            wanted += [("remarks: row", rows, [remark.row])]
            wanted += [("remarks: column", columns, [remark.column])]
            if not {"note", "overrides", "not_run"} & remark.model_fields_set:
                where = f"blocks: {name}: remarks" if name else "remarks"
                yield f"{where}: note: is missing; add it, overrides or not_run"
    for reading in table.readings:
        place = f"readings: {reading.label}"
        wanted += [(f"{place}: rows", rows, reading.rows)]
        wanted += [(f"{place}: columns", columns, reading.columns)]
        wanted += [(f"{place}: blocks", [*table.blocks], reading.blocks)]
    for place, known, names in wanted:
        for name in names:
            if name is not None and name not in known:
                yield f"{place}: {name!r} does not exist; {meant(name, known)}"


def printed(text: str, where: str) -> tuple[float, float | None, int]:
    """Parses a printed cell to value, ± (None if there is none) and number of decimals."""
    match = PRINTED.fullmatch(text)
    if match is None:
        raise InputError(f"{where}: expected a number such as 79.96 ± 0.73 or 79.96, got {text!r}")
    std = None if match["std"] is None else float(match["std"])
    return float(match["value"]), std, len(match["value"].partition(".")[2])


def _cells(table: Table, where: str) -> Iterator[Cell]:
    """Yields the cells of a table, in the order of printing."""
    for reading in table.readings or [Reading(label="")]:
        for place, text in _places(table, reading, where):
            yield _cell(table, reading, place, text, ": ".join(filter(None, (where, *place))))


def _places(table: Table, reading: Reading, where: str) -> Iterator[tuple[Place, str | None]]:
    """Yields block, row and column of every cell of a reading, with the printed text."""
    for block in (name for name in table.blocks if name in (reading.blocks or table.blocks)):
        for row in (key for key in table.rows if key in (reading.rows or table.rows)):
            texts = _texts(table, block, row, where)
            for column in table.columns:
                wanted = column in texts and column in (reading.columns or table.columns)
                if wanted and texts[column] not in NOT_PRINTED:
                    yield (block, row, column), texts[column]


def _texts(table: Table, block: str, row: str, where: str) -> dict[str, str | None]:
    """Maps columns to the printed texts of a row; None if unknown, as in a table of ours."""
    if table.ours:
        return dict.fromkeys(table.rows[row].columns or table.columns)
    where = ": ".join(filter(None, (where, block)))
    lines = table.blocks[block].cells or {}
    if row not in lines:
        raise InputError(f"{where}: row {row!r} is missing; add its values to cells")
    if len(lines[row]) != len(table.columns):
        wanted = f"{len(table.columns)} columns ({', '.join(table.columns)})"
        raise InputError(
            f"{where}: {row}: {len(lines[row])} values for {wanted}; give one for each"
        )
    return {c: None if t == UNKNOWN else t for c, t in zip(table.columns, lines[row])}


def _cell(table: Table, reading: Reading, place: Place, text: str | None, where: str) -> Cell:
    """Builds a cell; the most specific level that sets a field decides.

    Notes on rows, columns and blocks describe the plain runs and are not those of a reading.
    """
    block, row, column = table.blocks[place[0]], table.rows[place[1]], table.columns[place[2]]
    remark = next((r for r in block.remarks if (r.row, r.column) == place[1:]), NO_REMARK)
    said = partial(_nearest, (remark, reading, row, column, block, table))
    levels = (table, block, row, column, remark, reading)
    noted = (reading,) if reading.label else (row, column, block)
    _require(said, text, where)
    value, std, decimals = (None, None, 2) if text is None else printed(text, where)
    baseline = _nearest((row, table), "baseline")
    return Cell(
        about=table,
        block=place[0],
        row=row.label or place[1],
        key=place[1],
        also=row.also,
        column=place[2],
        reading=reading.label,
        control=reading.control,
        value=value,
        std=None if std is None else round(std * POINTS[said("std_is", "points")], 9),
        decimals=decimals,
        corrected=remark.corrected,
        experiment=said("experiment"),
        metric=said("metric"),
        overrides=tuple(word for level in levels for word in level.overrides),
        tolerance=said("tolerance", 0.0),
        runs=said("runs", 0),
        reason=said("not_run"),
        note=" ".join(level.note for level in (*noted, remark) if level.note),
        baseline=None if baseline == place[1] else baseline,
        unit=_nearest((column, block), "unit"),
        bold=_nearest((column, block), "bold", True),
        printed_std=std,
        candidates=_candidates(levels),
        cost=prod(level.cost for level in levels),
    )


def _candidates(levels: Sequence[Level]) -> tuple[Names, ...]:
    """Combines each candidate of a level with each of the others."""
    lists = [level.candidates for level in levels if level.candidates]
    return tuple(sum(parts, ()) for parts in product(*lists)) if lists else ()


def _require(said: Callable[..., Any], text: str | None, where: str) -> None:
    """Raises InputError for a cell that can neither be judged nor run."""
    needed = () if text is None else ("tolerance", "runs")
    for key in (*needed, *(() if said("not_run") else ("experiment", "metric"))):
        if said(key) is None:
            raise InputError(f"{where}: {key!r} is missing; give it for the table, block or row")


def _require_labels(cells: Sequence[Cell], where: str) -> None:
    """Raises InputError for two rows of a block with the same label."""
    owners: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first = owners.setdefault((cell.block, cell.label), cell)
        if (first.key, first.reading) != (cell.key, cell.reading):
            raise InputError(
                f"{where}: rows {first.key} and {cell.key}: both have the label {cell.label!r}; "
                "give each its own"
            )


def _tuned(cell: Cell, best: Best) -> Cell:
    """Adds the best settings found by a search to a cell; without settings it is not run."""
    found = best.get(cell.block, {}).get(cell.key, {}).get(cell.column)
    if found is None:
        lacking = f"no settings yet; `scripts/tune.py {cell.table}` finds them"
        return replace(cell, reason=lacking, experiment=None)
    return replace(cell, overrides=(*cell.overrides, *found["overrides"]))


def _nearest(levels: Sequence[Level], key: str, default: Any = None) -> Any:
    """Returns the value of a field from the first level that sets it."""
    return next((getattr(of, key) for of in levels if key in of.model_fields_set), default)
