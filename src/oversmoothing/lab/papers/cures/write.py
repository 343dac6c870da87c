"""Writes the study: every cell as CSV and Markdown with a summary, and a figure."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.papers.cures.compare import BASELINE, Comparison, compare
from oversmoothing.lab.papers.cures.draw import draw
from oversmoothing.lab.papers.cures.records import Measured, Record, measured
from oversmoothing.lab.papers.cures.run import today
from oversmoothing.lab.papers.cures.study import Cell, Study
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.numbers import update
from oversmoothing.lab.store.files import write_text

NO_BREAK = "\u00a0"
SHOWN = (2, 8, 32, 64)  # depths of the summary
HEADING = "# Which method at which depth\n\n"
HEAD = ("graph", "network", "layers", "method", "n", "mean", "std", "difference", "p",
        "p_adjusted", "candidate", "values", "seeds")  # fmt: skip


def write_all(study: Study, records: Sequence[Record], results: Path, pdf: bool) -> list[Path]:
    """Prints the summary, writes all files and returns their paths."""
    found = measured(study, records)
    compared = compare(found)
    tables = results / "tables"
    paths = [write_csv(tables / "cures.csv", HEAD, _rows(study, found, compared))]
    text = summary(study, found, compared) + _earlier(study, records, found)
    write_text(tables / "cures.md", f"{HEADING}{text}\n\n{_every_graph(study, found, compared)}")
    paths.append(tables / "cures.md")
    if found:
        paths += save(draw(study, found), results / "figures" / "cures", pdf)
    print(text)
    return paths + update(results)


def summary(
    study: Study, found: Mapping[Cell, Measured], compared: Mapping[Cell, Comparison]
) -> str:
    """Returns the gains of each method in the first network, by depth and kind of graph."""
    network = next(iter(study.networks))
    own = {cell: c for cell, c in compared.items() if cell.network == network}
    plain = {cell: m for cell, m in found.items() if cell[1::2] == (network, BASELINE)}
    depths = [d for d in SHOWN if any(cell.layers == d for cell in own)]
    parts = [
        _of_kind(study, own, plain, kind, depths)
        for kind in dict.fromkeys(about["kind"] for about in study.graphs.values())
    ]
    done, every = len(found), len(study.cells())
    plan = f"; `make cures PLAN=1` lists the {every - done} others" if done < every else ""
    return "\n\n".join([*parts, f"{done} of {every} cells are measured{plan}."])


def _earlier(study: Study, records: Sequence[Record], found: Mapping[Cell, Measured]) -> str:
    """Says how many of the measured cells are of an earlier version."""
    shown = [r for r in records if r.cell in found and r.candidate == found[r.cell].candidate]
    cells = {record.cell for record in set(shown) - set(today(study, shown))}
    if not cells:
        return ""
    number = "All" if len(cells) == len(found) else f"{len(cells)} of the"
    return (
        f" {number} measured cells were run by an earlier version of this package, "
        "which drew other random numbers for the same seeds; `make cures EARLIER=1` measures them "
        "again."
    )


def _of_kind(
    study: Study,
    compared: Mapping[Cell, Comparison],
    plain: Mapping[Cell, Measured],
    kind: str,
    depths: Sequence[int],
) -> str:
    """A table of methods × depths over the graphs of a kind."""
    graphs = {graph for graph, about in study.graphs.items() if about["kind"] == kind}
    rows = []
    for method in study.methods:
        cells = [c for c in compared if c.method == method and c.graph in graphs]
        by_depth = [[compared[c] for c in cells if c.layers == d] for d in depths]
        if method != BASELINE:
            rows.append([method, *map(_effect, by_depth)])
    first = [
        ", ".join(f"{c.graph} {m.mean:.1f}" for c, m in plain.items()
                  if c.layers == d and c.graph in graphs) or "missing"
        for d in depths
    ]  # fmt: skip
    head = [f"{kind} graphs", *(f"L = {d}" for d in depths)]
    return table(head, [[f"{BASELINE}: accuracy", *first], *rows])


def _effect(compared: Sequence[Comparison]) -> str:
    """Returns the mean difference over graphs, and the counts of significant differences."""
    if not compared:
        return "missing"
    better = sum(c.significant and c.difference > 0 for c in compared)
    worse = sum(c.significant and c.difference < 0 for c in compared)
    mean = statistics.fmean(c.difference for c in compared)
    text = f"{mean:+.1f}" if abs(mean) >= 0.05 else "0.0"
    counted = f"({better} ↑ {worse} ↓ of {len(compared)})".replace(" ", NO_BREAK)
    return f"{text.replace('-', '−')} {counted}"


def _every_graph(
    study: Study, found: Mapping[Cell, Measured], compared: Mapping[Cell, Comparison]
) -> str:
    """Returns a table of methods × depths for each network and graph, with missing commands."""
    parts = [
        f"## Every graph\n\nTest accuracy, %: mean ± std (ddof = 1), n = "
        f"{len(study.seeds)}. ↑ ↓: better or worse than {BASELINE}, paired t-test at a false "
        "discovery rate of 5 % over all comparisons of this page."
    ]
    for network, about in study.networks.items():
        for graph in about.get("graphs", study.graphs):
            rows = [
                [m, *(_cell(Cell(graph, network, d, m), found, compared) for d in about["layers"])]
                for m in study.methods
            ]
            head = [f"{network}, {graph}", *(f"L = {d}" for d in about["layers"])]
            parts.append(table(head, rows))
    missing = [cell.command for cell in study.cells() if cell not in found]
    if missing:
        parts.append("<details><summary>Commands of the missing cells</summary>\n")
        parts.append("```\n" + "\n".join(missing) + "\n```\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _cell(cell: Cell, found: Mapping[Cell, Measured], compared: Mapping[Cell, Comparison]) -> str:
    if cell not in found:
        return "missing"
    text = f"{found[cell].mean:.1f} ± {found[cell].std:.1f}"
    comparison = compared.get(cell)
    if comparison is None or not comparison.significant:
        return text
    return f"{text} {'↑' if comparison.difference > 0 else '↓'}"


def _rows(
    study: Study, found: Mapping[Cell, Measured], compared: Mapping[Cell, Comparison]
) -> list[list[object]]:
    rows = []
    for cell in study.cells():
        if cell in found:
            own, beside = found[cell], compared.get(cell)
            numbers = [f"{x:.3g}" for x in beside] if beside else [""] * 3
            means = [f"{own.mean:.2f}", f"{own.std:.2f}"]
            each = [" ".join(map(str, of)) for of in (own.test.values(), own.test)]
            rows.append([*cell, len(own.test), *means, *numbers, own.candidate, *each])
    return rows
