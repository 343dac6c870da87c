"""The form of the file of tables: what may stand where, checked before use."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from oversmoothing.config.names import meant
from oversmoothing.errors import InputError

SHARED = {"experiment", "metric", "tolerance", "runs", "not_run", "std_is"}
LEVEL = SHARED | {"overrides", "note"}
SHOWN = {"unit", "bold"}
ROW = LEVEL | {"label", "also", "baseline", "columns"}
BODY = {"cells", "remarks"}
READING = LEVEL | {"label", "rows", "columns", "blocks", "control"}
TABLE = SHARED | BODY | {"title", "source", "note", "unit", "baseline", "readings", "of"}
TABLE |= {"rows", "columns", "blocks", "ours"}
REMARK = {"row", "column", "note", "corrected", "not_run", "overrides"}

Spec = dict[str, Any]


def read(path: Path) -> dict[str, Spec]:
    """Tables by name, with everything that ``of`` points at filled in.

    Raises:
        InputError: no such file, bad YAML (a key given twice included), an unknown key, a missing
            key or a value of the wrong kind; names file, table and place.
    """
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise InputError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    content = mapping(content, str(path), known=("tables",), needed=("tables",))
    tables = mapping(content["tables"], f"{path}: tables")
    return {name: _table(tables, name, f"{path}: {name}") for name in tables}


def mapping(
    node: Any, where: str, known: Collection[str] | None = None, needed: Collection[str] = ()
) -> Spec:
    """``node``, if it is a mapping with no key but ``known`` ones and all ``needed`` ones."""
    if not isinstance(node, Mapping):
        raise InputError(f"{where}: expected `key: value` lines, got {node!r}")
    for key in node:
        if known is not None and key not in known:
            raise InputError(f"{where}: unknown key {key!r}; {meant(str(key), [*known])}")
    for key in needed:
        if node.get(key) is None:
            raise InputError(f"{where}: {key!r} is missing; add it")
    return dict(node)


def items(node: Any, where: str, known: Collection[str]) -> dict[str, Spec]:
    """Rows, columns or blocks by key; a bare list is short for its overrides."""
    long = {
        str(key): {"overrides": value} if isinstance(value, list) else value
        for key, value in mapping(node, where).items()
    }
    return {key: _item(value, f"{where}: {key}", known) for key, value in long.items()}


def names(node: Any, where: str) -> tuple[str, ...]:
    """A list of words."""
    if not isinstance(node, list) or not all(isinstance(word, str) for word in node):
        raise InputError(f"{where}: expected a list such as [a, b], got {node!r}")
    return tuple(node)


def _table(tables: Spec, name: str, where: str) -> Spec:
    table = mapping(tables[name], where, TABLE)
    if "of" in table:
        other = str(table["of"])
        if other not in tables or "of" in mapping(tables[other], where):
            known = meant(other, [key for key in tables if key != name])
            raise InputError(f"{where}: of: there is no table {other!r} with cells; {known}")
        table = mapping(tables[other], where, TABLE) | table
    mapping(table, where, TABLE, needed=("title", "source", "unit", "rows", "columns"))
    table["rows"] = items(table["rows"], f"{where}: rows", ROW)
    table["columns"] = items(table["columns"], f"{where}: columns", LEVEL | SHOWN)
    table["blocks"] = items(_blocks(table), where, LEVEL | SHOWN | BODY)
    for block, spec in table["blocks"].items():
        _check_remarks(spec.get("remarks") or [], table, f"{where}: {block}: remarks")
    table["readings"] = [
        _item(reading, f"{where}: readings", READING, ("label",))
        for reading in table.get("readings") or []
    ]
    _check_shared(table, where)
    _check_ours(table, where)
    _check_baselines(table, where)
    return table


def _blocks(table: Spec) -> Spec:
    """A table without blocks is one block without a name."""
    if "blocks" in table:
        return table["blocks"]
    return {"": {key: table[key] for key in BODY if key in table}}


def _item(node: Any, where: str, known: Collection[str], needed: Collection[str] = ()) -> Spec:
    item = mapping(node, where, known, needed)
    for key in ("overrides", "also", "rows", "columns", "blocks"):
        item[key] = names(item[key], f"{where}: {key}") if key in item else ()
    _check_shared(item, where)
    return item


def _check_ours(table: Spec, where: str) -> None:
    """Published values and rows that lack columns exclude each other."""
    rows = [key for key, row in table["rows"].items() if row["columns"]]
    if table.get("ours") and any("cells" in block for block in table["blocks"].values()):
        raise InputError(f"{where}: ours: such a table has no published cells; leave one out")
    if rows and not table.get("ours"):
        raise InputError(f"{where}: {rows[0]}: columns: only with `ours: true`; print – in cells")


def _check_baselines(table: Spec, where: str) -> None:
    for place, level in ((where, table), *((f"{where}: {k}", r) for k, r in table["rows"].items())):
        if level.get("baseline") is not None and level["baseline"] not in table["rows"]:
            known = meant(str(level["baseline"]), [*table["rows"]])
            raise InputError(f"{place}: baseline: there is no row {level['baseline']!r}; {known}")


def _check_remarks(remarks: list[Spec], table: Spec, where: str) -> None:
    for remark in remarks:
        says = next((key for key in ("not_run", "overrides") if key in remark), "note")
        remark = mapping(remark, where, REMARK, ("row", "column", says))
        names(remark.get("overrides", []), f"{where}: overrides")
        for kind in ("row", "column"):
            if remark[kind] not in table[f"{kind}s"]:
                known = meant(str(remark[kind]), [*table[f"{kind}s"]])
                raise InputError(f"{where}: there is no {kind} {remark[kind]!r}; {known}")
        if not isinstance(remark.get("corrected", 0.0), (int, float)):
            raise InputError(f"{where}: corrected: expected a number, got {remark['corrected']!r}")


def _check_shared(node: Spec, where: str) -> None:
    tolerance, runs = node.get("tolerance", 0), node.get("runs", 1)
    if not isinstance(tolerance, (int, float)) or not tolerance >= 0:
        raise InputError(f"{where}: tolerance: expected a number of at least 0, got {tolerance!r}")
    if not isinstance(runs, int) or not runs >= 1:
        raise InputError(f"{where}: runs: expected a whole number of at least 1, got {runs!r}")
    if node.get("std_is", "points") not in ("points", "fraction"):
        raise InputError(f"{where}: std_is: expected points or fraction, got {node['std_is']!r}")
