"""The schema of tables, which ``results/expected/README.md`` describes."""

from collections.abc import Iterable, Iterator
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
    columns: Names = ()


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
        figure: whether a table by depth has a figure.
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
    figure: bool = True
    of: str | None = None
    tuned: str | None = None
    compared: str | None = None
    tuning_seeds: tuple[int, ...] = ()


NO_REMARK = Remark(row="", column="")


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
    for one in error.errors():
        where = ": ".join(map(str, _shown(one["loc"])))
        is_value = one["type"] not in ("missing", "extra_forbidden")
        yield f"{where}: {one['msg']}" + f", got {one['input']!r}" * is_value


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
    parts = [("rows", key, row) for key, row in table.rows.items()]
    parts += [("blocks", name, block) for name, block in table.blocks.items()]
    for kind, name, part in parts:
        wanted += [(f"{kind}: {name}: columns", columns, part.columns)]
        if part.columns and not table.ours:
            yield f"{kind}: {name}: columns: only with `ours: true`; print – in cells"
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
