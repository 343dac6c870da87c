"""The result of a diagnosis: a table, a figure, a file."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from oversmoothing.diagnosis.watch import OF_EDGES, Metrics, Watch
from oversmoothing.errors import InputError, meant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3  # panels in a row
SHARES = ("cosine", "mean_share", "attention_similarity")  # shown from 0 to 1
MARKED = 24  # largest number of layers that are drawn with markers
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
        _draw(self, Path(path))

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


def summary(model: str, watch: Watch, wanted: Metrics) -> Report:
    """Returns means, standard deviations and counts of the measurements of a watch.

    Args:
        model: name of the model.
        watch: with the measurements of all calls.
        wanted: metrics given by the user; None: all that are available.

    Raises:
        InputError: none of the metrics is available, or no sample of a layer has two tokens.
    """
    several = {name for name, number in watch.values if number}
    layers = tuple(f"{n}#{i + 1}" if n in several else n for n, i in watch.values)
    rows = [{m: torch.cat(v) for m, v in row.items()} for row in watch.values.values()]
    for layer, row in zip(layers, rows):
        if any(not len(values) for values in row.values()):
            raise InputError(
                f"{layer}: every sample has fewer than two tokens that count, and similarity needs "
                "two; choose other layers, inputs or mask, or prefix=0"
            )
    names = [str(m) for m in watch.measures if any(m in row for row in rows)]
    missing = [m for m in watch.measures if m not in names] if wanted is not None else []
    why = "edges are not known, or no attention map was seen"
    if not names:
        raise InputError(f"metrics: cannot measure {', '.join(missing)}: {why}; give edges=")
    finite = {m: [_finite(row.get(m)) for row in rows] for m in names}
    return Report(
        model=model,
        layers=layers,
        values={m: [_none(v.mean()) for v in finite[m]] for m in names},
        std={m: [_none((v - v.mean()).square().mean().sqrt()) for v in finite[m]] for m in names},
        counts={m: [len(v) for v in finite[m]] for m in names},
        samples=len(watch.sizes),
        tokens=(min(watch.sizes), max(watch.sizes)),
        unit=watch.unit,
        notes=(
            *_left_out(layers, watch),
            *(_parts(layers, rows, watch.inputs) if watch.unit == "tokens" else ()),
            *(_edges(watch) if any(m in names for m in OF_EDGES) else ()),
            *(_bounds(layers, [*watch.bounds.values()]) if "effective_rank" in names else ()),
            *_zeros(layers, rows),
            *(f"Not measured: {metric} ({why})." for metric in missing),
        ),
    )


def beside(own: Report, other: Report) -> Report:
    """Adds a reference to a report, with the layers and metrics of the report."""
    if own.layers != other.layers:
        raise InputError(
            f"reference: calls {len(other.layers)} layers where the model calls "
            f"{len(own.layers)}; give a model of the same architecture"
        )
    absent: list[float | None] = [None] * len(own.layers)
    values = {metric: other.values.get(metric, absent) for metric in own.values}
    return replace(own, reference=replace(other, values=values))


def _zeros(layers: Sequence[str], rows: Sequence[Mapping[str, Tensor]]) -> Iterator[str]:
    """Says which layer is the first to return samples whose tokens are all 0."""
    for layer, row in zip(layers, rows):
        if count := int((row.get("norm", torch.ones(1)) == 0).sum()):
            yield (
                f"All tokens are 0 in {count} of the samples after {layer}: equal tokens, although "
                "their cosine and effective rank are 0 and their MAD is 1."
            )
            return


def _left_out(layers: Sequence[str], watch: Watch) -> Iterator[str]:
    """Says what is left out, and in which layers if it is not in all of them."""
    for what, rows in watch.left_out.items():
        found = [layer for layer, row in zip(layers, watch.values) if row in rows]
        names = ", ".join(found if len(found) < 4 else (found[0], found[1], "…", found[-1]))
        some = f", in {len(found)} of {len(layers)} layers: {names}"
        yield f"Left out: {what}{some * (len(found) < len(layers))}."
    if watch.isolated:
        nodes = f"{watch.isolated} node{'s' * (watch.isolated > 1)}"
        yield f"Left out: {nodes} without neighbours, of MAD only."


def _parts(
    layers: Sequence[str], rows: Sequence[Mapping[str, Tensor]], inputs: int
) -> Iterator[str]:
    """Says which layer is the first that has more samples than the model has inputs."""
    for layer, row in zip(layers, rows):
        if (samples := max(map(len, row.values()), default=0)) > inputs:
            yield (
                f"{layer} has {samples} samples for {inputs} inputs: it acts on parts, such as "
                "windows, views or answers, and each part counts as a sample."
            )
            return


def _edges(watch: Watch) -> Iterator[str]:
    """Says which edges make energies and MAD differ from their definition."""
    if watch.weighted:
        yield "Ignored: the weights of the edges; dirichlet_energy and mad count all edges alike."
    if watch.one_way or watch.repeated:
        yield (
            f"Edges: {watch.one_way} lack their reverse and {watch.repeated} are repeated, but "
            "dirichlet_energy and mad expect both directions of every edge, each once."
        )


def _bounds(layers: Sequence[str], bounds: Sequence[int]) -> Iterator[str]:
    """Says where the effective rank has other bounds, if layers differ in tokens or channels."""
    changes = [i for i in range(len(bounds)) if i == 0 or bounds[i] != bounds[i - 1]]
    if len(changes) > 1:
        found = ", ".join(f"{bounds[i]} from {layers[i]} on" for i in changes)
        yield f"The effective rank is at most the number of tokens and of channels: {found}."


def _finite(values: Tensor | None) -> Tensor:
    """Drops samples without a value, such as the MAD of a graph without edges."""
    return torch.empty(0) if values is None else values[values.isfinite()]


def _none(value: Tensor) -> float | None:
    return value.item() if value.isfinite() else None


def _draw(report: Report, path: Path) -> None:
    """Draws one panel per metric over the layers, the reference dashed.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(f"plot: needs matplotlib ({error}); pip install matplotlib") from error
    columns = min(COLUMNS, len(report.values))
    rows = math.ceil(len(report.values) / columns)
    figure = Figure((3.2 * columns, 2.4 * rows + 0.3), dpi=150, layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel, metric in zip(panels, report.values):
        _panel(panel, report, metric)
    for panel in panels[len(report.values) :]:
        panel.remove()
    if report.reference:
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written ({error}); choose another") from error


def _panel(panel: "Axes", report: Report, metric: str) -> None:
    marker = "o" if len(report.layers) <= MARKED else ""
    depth = range(1, len(report.layers) + 1)
    for of, style, colour in ((report, "-", "#0072B2"), (report.reference, "--", "#777777")):
        if of is not None:
            values = [math.nan if value is None else value for value in of.values[metric]]
            look: dict[str, Any] = {"marker": marker, "ms": 3, "lw": 1.4, "color": colour}
            panel.plot(depth, values, style, **look, label=of.model)
    if metric in SHARES:
        panel.set_ylim(min(0.0, panel.get_ylim()[0]), 1.03)
    panel.set_title(metric.replace("_", " "), fontsize=9)
    panel.set_xlabel("layer", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.locator_params(axis="x", integer=True)
    panel.grid(color="#e6e6e6")
    panel.spines[["top", "right"]].set_visible(False)
