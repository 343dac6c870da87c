"""Reads and writes the files of a search: all trials as CSV, and the best settings as YAML.

A folder ``results/tuning/<table>`` holds ``space.yaml``, which ``Space`` describes; one CSV for
each data set and method, with a line for each configuration; and ``best.yaml``, with the settings
of each cell.
"""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.files import write_text

Best = dict[str, dict[str, dict[str, dict[str, Any]]]]  # block -> row -> column -> settings
BEST = "best.yaml"


def read_best(folder: Path) -> Best:
    """Reads the best settings; empty if there are none yet.

    Raises:
        InputError: the file is damaged.
    """
    path = folder / BEST
    if not path.exists():
        return {}
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        settings = [s for rows in found.values() for cells in rows.values() for s in cells.values()]
        if not all(isinstance(s["overrides"], list) for s in settings):
            raise ValueError("overrides: expected a list")
        return found
    except Exception as error:  # the reader may raise any error for a damaged file
        why = reason_of(error)
        raise InputError(f"{path}: cannot be read ({why}); restore the file with git") from None


def write_best(folder: Path, place: tuple[str, str, str], settings: dict[str, Any]) -> None:
    """Adds the best settings of a cell, or replaces them.

    Args:
        folder: of the search.
        place: block, row and column of the cell.
        settings: ``overrides``, ``trial`` and further information.
    """
    block, row, column = place
    with _alone(folder):
        every = read_best(folder)
        every.setdefault(block, {}).setdefault(row, {})[column] = settings
        cells = every[block][row]
        every[block][row] = {key: cells[key] for key in sorted(cells, key=by_depth)}
        text = yaml.safe_dump(every, default_flow_style=None, sort_keys=False, width=1000)
        write_text(folder / BEST, text)


def by_depth(column: str) -> tuple[int, str]:
    """Returns a sort key that puts L=2 before L=16."""
    return len(column), column


def write_trials(path: Path, column: str, lines: list[dict[str, Any]]) -> None:
    """Writes the configurations of a cell into the CSV of its data set and method.

    Args:
        path: of the CSV; lines of other cells are kept.
        column: of the table.
        lines: one for each configuration.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.parent):
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        others = [own for own in csv.DictReader(io.StringIO(text)) if own["column"] != column]
        every = others + [{"column": column, **own} for own in lines]
        every.sort(key=lambda own: (by_depth(own["column"]), int(own["trial"])))
        file = io.StringIO()
        writer = csv.DictWriter(
            file, ["column", *lines[0]], lineterminator="\n", extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(every)
        write_text(path, file.getvalue())


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Context in which no other process changes the files of a search."""
    with FileLock(folder / ".lock"):
        yield
