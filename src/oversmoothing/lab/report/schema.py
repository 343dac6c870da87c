"""Reads and checks files of tables, whose form ``results/expected/README.md`` describes."""

from collections.abc import Iterable
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from oversmoothing.errors import InputError, meant, reason_of
from oversmoothing.lab.config.types import argument_problems

UNSET: Any = object()  # unlike null, it leaves the decision to the next level
Names = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Level:
    """Fields that any level of a table may set; for each cell the most specific level decides.

    Only overrides and notes of all levels are combined.
    """

    experiment: str | None = UNSET
    metric: str | None = UNSET
    tolerance: float = UNSET
    runs: int = UNSET
    std_is: Literal["points", "fraction"] = UNSET
    not_run: str | None = UNSET
    overrides: Names = ()
    note: str = ""

    def __post_init__(self) -> None:
        for key, least in (("tolerance", 0), ("runs", 1)):
            value = getattr(self, key)
            if value is not UNSET and value < least:
                raise InputError(f"{key}: expected a number of at least {least}, got {value}")


@dataclass(frozen=True, kw_only=True)
class Row(Level):
    label: str = ""
    also: Names = ()
    baseline: str | None = UNSET
    columns: Names = ()


@dataclass(frozen=True, kw_only=True)
class Column(Level):
    unit: str = UNSET
    bold: bool = UNSET


@dataclass(frozen=True, kw_only=True)
class Remark(Level):
    row: str
    column: str
    corrected: float | None = None


@dataclass(frozen=True, kw_only=True)
class Block(Column):
    cells: dict | None = None
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reading(Level):
    label: str
    rows: Names = ()
    columns: Names = ()
    blocks: Names = ()
    control: bool = False


@dataclass(frozen=True, kw_only=True)
class Table(Level):
    """A table.

    Args:
        columns: in the order of printing.
        ours: whether the table is measured only here, so that no cell gets a verdict.
        of: name of the table whose fields this one inherits.
        tuned: folder, below the results, of the search for the settings of each cell.
        compared: key of a row that is compared with every other row.
    """

    name: str
    title: str
    source: str
    unit: str
    rows: dict[str, Row]
    columns: dict[str, Column]
    blocks: dict[str, Block] = field(default_factory=dict)
    readings: tuple[Reading, ...] = ()
    baseline: str | None = None
    ours: bool = False
    of: str | None = None
    tuned: str | None = None
    compared: str | None = None


def read(path: Path) -> dict[str, Table]:
    """Reads tables by name; a table with ``of`` inherits the fields of the other table.

    Raises:
        InputError: the file does not exist or is not valid YAML (duplicate keys included), a key is
            unknown or missing, or a value has a wrong type. The message names file, table and
            place.
    """
    try:
        content = mapping(OmegaConf.to_container(OmegaConf.load(path)), str(path))
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        why = reason_of(error)
        raise InputError(f"{path}: cannot be read: {why}; correct or restore it") from error
    named(["tables"], content, f"{path}: key")
    nodes = mapping(content.get("tables"), f"{path}: tables")
    return {name: _table(nodes, name, f"{path}: {name}") for name in nodes}


def mapping(node: Any, where: str) -> dict[str, Any]:
    """Returns a node; raises InputError unless it is a mapping."""
    if not isinstance(node, dict):
        raise InputError(f"{where}: expected `key: value` lines, got {node!r}")
    return {str(key): value for key, value in node.items()}


def named(known: Iterable[str], wanted: Iterable[str], where: str) -> list[str]:
    """Selects the wanted names, in the order of the known ones; all of them if none is wanted."""
    known, wanted = list(known), list(wanted)
    for name in wanted:
        if name not in known:
            raise InputError(f"{where} {name!r} does not exist; {meant(name, known)}")
    return [name for name in known if not wanted or name in wanted]


def _table(nodes: dict[str, Any], name: str, where: str) -> Table:
    node = mapping(nodes[name], where)
    if of := node.get("of"):
        base = nodes.get(str(of))
        if base is None or "of" in mapping(base, where):
            known = meant(str(of), [key for key in nodes if key != name])
            raise InputError(f"{where}: of: there is no table {of!r} with cells; {known}")
        node = base | node
    if "blocks" not in node:  # one block without a name
        node["blocks"] = {"": {key: node.pop(key) for key in ("cells", "remarks") if key in node}}
    table = _object(Table, node, where, name=name)
    _check_names(table, where)
    if table.ours and any(block.cells is not None for block in table.blocks.values()):
        raise InputError(f"{where}: ours: such a table has no published cells; leave one out")
    return table


def _object(kind: type, node: Any, where: str, **given: Any) -> Any:
    """Builds an object; the keys of the node must be fields of ``kind``, with their types.

    A list is short for the field ``overrides``.
    """
    node = mapping({"overrides": node} if isinstance(node, list) else node, where)
    if problems := argument_problems(f"{where}: ", kind, node, tuple(given)):
        raise InputError(problems[0])
    hints = get_type_hints(kind)
    values = {key: _value(hints[key], value, f"{where}: {key}") for key, value in node.items()}
    try:
        return kind(**values, **given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _value(hint: Any, node: Any, where: str) -> Any:
    """Converts a node to the type of a hint; lists become tuples."""
    kind = next(filter(is_dataclass, get_args(hint)), None)
    if isinstance(node, list):
        return tuple(_object(kind, item, where) if kind else item for item in node)
    if kind is None:
        return node
    nodes = mapping(node, where)
    return {k: _object(kind, n, f"{where}: {k}" if k else where) for k, n in nodes.items()}


def _check_names(table: Table, where: str) -> None:
    """Refuses names of rows and columns that do not exist."""
    for place, level in ((where, table), *((f"{where}: {k}", r) for k, r in table.rows.items())):
        if level.baseline not in (UNSET, None):
            named(table.rows, [level.baseline], f"{place}: baseline: row")
    if table.compared is not None:
        named(table.rows, [table.compared], f"{where}: compared: row")
    for key, row in table.rows.items():
        named(table.columns, row.columns, f"{where}: {key}: column")
        if row.columns and not table.ours:
            raise InputError(f"{where}: {key}: columns: only with `ours: true`; print – in cells")
    for remark in (remark for block in table.blocks.values() for remark in block.remarks):
        named(table.rows, [remark.row], f"{where}: remarks: row")
        named(table.columns, [remark.column], f"{where}: remarks: column")
        if not (remark.note or remark.overrides or remark.not_run is not UNSET):
            raise InputError(f"{where}: remarks: 'note' is missing; add it, overrides or not_run")
