"""Formats a table as LaTeX, with booktabs."""

from collections.abc import Sequence
from pathlib import Path

from oversmoothing.lab.report.grid import Block, Entry, layout
from oversmoothing.lab.report.remarks import COMPARED, comparisons, counts, legend, notes
from oversmoothing.lab.store.files import write_text

SYMBOLS = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    "±": r"$\pm$", "·": r"$\cdot$", "−": "$-$", "×": r"$\times$", "≤": r"$\leq$", "√": r"$\surd$",
    "γ": r"$\gamma$", "η": r"$\eta$", "σ": r"$\sigma$", "τ": r"$\tau$", "ᵐ": "$^m$", "²": "$^2$",
    "†": r"$\dagger$", "✓": r"$\surd$", "▲": r"$\uparrow$", "▼": r"$\downarrow$", "✗": r"$\times$",
}  # fmt: skip


def write_latex(entries: Sequence[Entry], folder: Path) -> Path:
    """Writes ``folder``/<table>.tex and returns its path.

    Raises:
        InputError: the file cannot be written.
    """
    path = folder / f"{entries[0].cell.table}.tex"
    write_text(path, latex(entries))
    return path


def latex(entries: Sequence[Entry]) -> str:
    """Formats a booktabs table, followed by comments with n, difference and run of every cell."""
    blocks, about = layout(entries), entries[0].cell.about
    caption = f"{about.title} ({about.unit}; {about.source}). {counts(entries)} {legend(entries)}"
    columns = blocks[0].columns
    lines = [
        r"% needs \usepackage{booktabs,graphicx}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{tex(caption)}}}",
        rf"\label{{tab:{about.name}}}",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{l{'c' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *map(tex, columns)]) + r" \\",
        *(line for block in blocks for line in _block(block)),
        r"\bottomrule",
        r"\end{tabular}}",
        *(rf"\par\smallskip\footnotesize {tex(note)}" for note in notes(entries)),
        *_compared(comparisons(entries)),
        r"\end{table}",
        *("% " + " | ".join(entry.details) for entry in entries),
    ]
    return "\n".join(lines) + "\n"


def tex(text: str) -> str:
    """Escapes the special characters of LaTeX."""
    return "".join(SYMBOLS.get(letter, letter) for letter in text)


def _compared(rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats the comparisons as a second tabular; empty if there are none."""
    if not rows:
        return []
    head, *lines = [" & ".join(map(tex, row)) + r" \\" for row in rows]
    return [
        rf"\par\smallskip\footnotesize {tex(COMPARED)}\par",
        r"\resizebox{\linewidth}{!}{%",
        rf"\begin{{tabular}}{{l{'c' * (len(rows[0]) - 1)}}}",
        *(r"\toprule", head, r"\midrule", *lines, r"\bottomrule"),
        r"\end{tabular}}",
    ]


def _block(block: Block) -> list[str]:
    width = len(block.columns) + 1
    head = rf"\multicolumn{{{width}}}{{l}}{{\textit{{{tex(block.name)}}}}} \\"
    rows = [" & ".join([tex(label), *map(_cell, row)]) for label, row in block.rows.items()]
    return [r"\midrule", *([head] * bool(block.name)), *(rf"{row} \\" for row in rows)]


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    ours = rf"\textbf{{{tex(entry.ours)}}}" if entry.best else tex(entry.ours)
    if not entry.printed:
        return ours
    return rf"{ours} {{\scriptsize({tex(entry.printed)}{tex(entry.mark)})}}"
