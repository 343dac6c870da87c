"""A table as LaTeX, with booktabs."""

from collections.abc import Sequence

from oversmoothing.report.grid import Block, Entry, layout
from oversmoothing.report.remarks import LEGEND, counts, notes

SYMBOLS = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "≤": r"$\leq$",
    "γ": r"$\gamma$",
    "τ": r"$\tau$",
    "†": r"$\dagger$",
    "✓": r"$\surd$",
    "▲": r"$\uparrow$",
    "▼": r"$\downarrow$",
    "✗": r"$\times$",
}


def latex(entries: Sequence[Entry]) -> str:
    """A booktabs table; n, difference and run of every cell stand behind it as comments.

    Raises:
        ValueError: no entries.
    """
    if not entries:
        raise ValueError("a table needs at least one cell")
    blocks, about = layout(entries), entries[0].cell.about
    caption = f"{about.title} ({about.unit}; {about.source}). {counts(entries)} {LEGEND}"
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
        r"\end{table}",
        *("% " + " | ".join(entry.details) for entry in entries),
    ]
    return "\n".join(lines) + "\n"


def tex(text: str) -> str:
    """Text with everything that LaTeX would read as a command written out."""
    return "".join(SYMBOLS.get(letter, letter) for letter in text)


def _block(block: Block) -> list[str]:
    width = len(block.columns) + 1
    head = rf"\multicolumn{{{width}}}{{l}}{{\textit{{{tex(block.name)}}}}} \\"
    rows = [" & ".join([tex(label), *map(_cell, row)]) for label, row in block.rows.items()]
    return [r"\midrule", *([head] * bool(block.name)), *(rf"{row} \\" for row in rows)]


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    ours = rf"\textbf{{{tex(entry.ours)}}}" if entry.best else tex(entry.ours)
    return rf"{ours} {{\scriptsize({tex(entry.printed)}{tex(entry.mark)})}}"
