"""The result of a diagnosis: a table, a figure, a file."""

import csv
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

from oversmoothing.errors import InputError, meant

LEGEND = {
    "cosine": "mean cosine of two tokens; 1: all point the same way",
    "effective_rank": "number of directions that the tokens take; 1: all lie on a line",
    "mean_share": "share of the mean token in the tokens' second moment; 1: all are equal",
    "norm": "mean length of a token",
    "dirichlet_energy": "mean over nodes of squared distances to neighbours; 0: all are equal",
    "mad": "mean cosine distance of neighbours; 0: all point the same way",
    "attention_similarity": "mean cosine of two rows of an attention map; 1: all are equal",
}


@dataclass(frozen=True)
class Report:
    """The measured metrics of every layer.

    Attributes:
        model: name of its class.
        layers: names; a module that is called several times has one row per call, ``name#2``.
        values: for every metric one mean over samples per layer; None where it is not available.
        std: the standard deviations over samples (dividing by their number).
        counts: the numbers of samples behind the means.
        samples: number of images, sentences or graphs.
        tokens: the smallest and the largest number of tokens of a sample.
        unit: what the tokens are.
        notes: what is left out, and what cannot be measured.
        reference: the report of the reference model; None without one.
    """

    model: str
    layers: tuple[str, ...]
    values: dict[str, list[float | None]]
    std: dict[str, list[float | None]]
    counts: dict[str, list[int]]
    samples: int
    tokens: tuple[int, int]
    unit: Literal["tokens", "nodes"] = "tokens"
    notes: tuple[str, ...] = ()
    reference: "Report | None" = None

    def __getitem__(self, metric: str) -> list[float | None]:
        """Returns a metric, one value per layer; raises KeyError if it was not measured."""
        if metric not in self.values:
            raise KeyError(f"{metric!r} was not measured; {meant(metric, self.values)}")
        return self.values[metric]

    def __str__(self) -> str:
        least, most = self.tokens
        sizes = f"{least}" if least == most else f"{least} to {most}"
        samples = "graph" if self.unit == "nodes" else "sample"
        plural = "s" if self.samples > 1 else ""
        head = f"{self.model}: {self.samples} {samples}{plural} of {sizes} {self.unit}"
        rows = [["layer", *self.values], *([layer, *cells] for layer, cells in self._cells())]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(_aligned(row, widths)) for row in rows]
        legend = [f"{name}: {LEGEND[name]}." for name in self.values if name in LEGEND]
        beside = [f"In parentheses: {self.reference.model}."] if self.reference else []
        warning = "Judge by several measures beside a reference: each alone can mislead."
        return "\n".join([head, *self.notes, "", *lines, "", *legend, *beside, warning])

    def _repr_html_(self) -> str:
        """Returns the table for a notebook."""
        rows = [["layer", *self.values], *([layer, *cells] for layer, cells in self._cells())]
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        before, _, after = str(self).split("\n\n")
        table = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<pre>{escape(before)}</pre><table>{table}</table><pre>{escape(after)}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as numbers, strings, lists and dictionaries, for example for JSON."""
        return asdict(self)

    def to_csv(self, path: str | Path) -> None:
        """Writes one line per layer: means, standard deviations, and the reference's means.

        Raises:
            InputError: the file cannot be written.
        """
        columns: dict[str, list[Any]] = {"layer": list(self.layers)}
        for metric, values in self.values.items():
            columns |= {metric: values, f"{metric}_std": self.std[metric]}
            if self.reference:
                columns[f"{metric}_reference"] = self.reference.values[metric]
        try:
            with Path(path).open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([columns, *zip(*columns.values())])
        except OSError as error:
            raise InputError(
                f"{path}: cannot be written ({error.strerror}); choose another"
            ) from error

    def plot(self, path: str | Path) -> None:
        """Draws one panel per metric over the layers, the reference dashed.

        Raises:
            InputError: matplotlib is not installed, or the file cannot be written.
        """
        from oversmoothing.diagnosis.plot import plot

        plot(self, Path(path))

    def _cells(self) -> Iterator[tuple[str, list[str]]]:
        for row, layer in enumerate(self.layers):
            yield layer, [self._cell(metric, row) for metric in self.values]

    def _cell(self, metric: str, row: int) -> str:
        own = _number(self.values[metric][row])
        return f"{own} ({_number(self.reference.values[metric][row])})" if self.reference else own


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    return [
        row[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:])),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"
