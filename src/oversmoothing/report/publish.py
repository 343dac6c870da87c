"""Writes everything that shows a table: tables, figure, its place in results/README.md."""

from collections.abc import Sequence
from pathlib import Path

from oversmoothing.report import depth_figures
from oversmoothing.report.collect import Planned
from oversmoothing.report.depth_data import by_depth
from oversmoothing.report.grid import judge
from oversmoothing.report.markers import replace_between_markers
from oversmoothing.report.tables import markdown, write_tables


def publish(planned: Sequence[Planned], results: Path) -> list[Path]:
    """Writes ``results/tables``, ``results/figures``, ``results/README.md``; returns the paths.

    Args:
        planned: all cells of one table.
        results: folder.
    """
    entries = judge([(p.cell, p.measured) for p in planned])
    name = entries[0].cell.table
    for folder in ("tables", "figures"):
        (results / folder).mkdir(parents=True, exist_ok=True)
    paths = write_tables(entries, results / "tables" / name)
    if any(entry.measured for entry in entries) and by_depth(entries):
        paths += depth_figures.draw(entries, results / "figures" / name)
    readme = results / "README.md"
    if f"<!-- {name}:start -->" in readme.read_text():
        replace_between_markers(readme, name, markdown(entries))
        paths.append(readme)
    return paths
