"""The result of a diagnosis: a table, a summary, a figure, a file."""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from oversmoothing.diagnosis.figure import axes_of, draw, listed
from oversmoothing.diagnosis.measures import (
    BESIDE,
    COLUMNS,
    LEGEND,
    MEASURES,
    OF_EDGES,
    OF_LABELS,
    OF_MAPS,
    OF_SAMPLES,
    SAMPLES,
    Metrics,
    Pair,
    arrow,
)
from oversmoothing.diagnosis.padding import is_model
from oversmoothing.diagnosis.sentences import bounded, number, sentences
from oversmoothing.diagnosis.watch import Watch
from oversmoothing.errors import InputError, ends, meant, reason_of


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
        bounds: the largest possible effective rank of every layer, the mean over samples.
        shown: the metrics of the printed table; empty: all.
        attention_matrix: mean cosine of the maps of two layers, L × L; empty without maps.
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
    bounds: tuple[float, ...] = ()
    shown: tuple[str, ...] = ()
    attention_matrix: tuple[tuple[float | None, ...], ...] = ()

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
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(_aligned(row, widths)) for row in rows]
        means = {m: LEGEND[m].lstrip("↑↓ ") for m in self._shown() if m in LEGEND}
        legend = [f"{m}: {text.replace('token', self.unit[:-1])}." for m, text in means.items()]
        arrows = ["↑ more alike if higher, ↓ if lower."] * any(map(arrow, self._shown()))
        beside = [f"In parentheses: {self.reference.model}."] if self.reference else []
        more = [name for name in self.values if name not in self._shown()]
        also = [f"Also measured, report[…]: {', '.join(more)}."] if more else []
        parts = [*arrows, *legend, *beside, *also, "", self.summary()]
        return "\n".join([head, *self.notes, "", *lines, "", *parts]).rstrip()

    def _repr_html_(self) -> str:
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._rows())
        before, _, *after = str(self).split("\n\n")
        table = "".join(f"<tr>{row}</tr>" for row in cells)
        below = escape("\n\n".join(after))
        return f"<pre>{escape(before)}</pre><table>{table}</table><pre>{below}</pre>"

    def summary(self) -> str:
        """Says in up to five sentences what the numbers show, computed from them."""
        return " ".join(sentences(self))

    def compare(self, other: "Report") -> "Report":
        """Returns this report with another one beside it, as the reference.

        Raises:
            InputError: the other one is no report, or has another number of layers.
        """
        if not isinstance(other, Report):
            raise InputError(f"reference: expected a Report, got {type(other).__name__}")
        if len(self.layers) != len(other.layers):
            raise InputError(
                f"reference: calls {len(other.layers)} layers where the model calls "
                f"{len(self.layers)}; give a model of the same architecture"
            )
        absent: list[float | None] = [None] * len(self.layers)
        values = {metric: other.values.get(metric, absent) for metric in self.values}
        return replace(self, reference=replace(other, values=values))

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as numbers, strings, lists and dictionaries, for example for JSON."""
        return asdict(self)

    def to_csv(self, path: str | Path) -> None:
        """Writes one line per layer: means, standard deviations, and the reference's means.

        Raises:
            InputError: the file cannot be written.
        """
        columns = self._columns()
        try:
            with Path(path).open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([columns, *zip(*columns.values())])
        except (OSError, TypeError, ValueError) as error:
            reason = reason_of(error)
            raise InputError(f"{path}: cannot be written ({reason}); choose another") from error

    def to_pandas(self) -> Any:
        """Returns a DataFrame with the columns of :meth:`to_csv` and the layers as its index.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise InputError(f"to_pandas: needs pandas ({error}); pip install pandas") from error
        columns = self._columns()
        return DataFrame(columns, index=columns.pop("layer"))

    def plot(
        self,
        path: str | Path | None = None,
        ax: Any = None,
        metrics: Iterable[str] | None = None,
        curves: bool | Iterable[str] = False,
    ) -> tuple[Any, Any]:
        """Draws one panel per metric over the layers, the reference dashed.

        Args:
            path: of a file to write; None: without.
            ax: axes of matplotlib to draw into, one for each metric; None: a new figure.
            metrics: None: those of the printed table, or as many of them as there are axes.
            curves: draw measured models beside this one, over relative depth, where they have the
                metric: all, or some by name, such as ``["SmolLM2-135M", "GCN, 32 layers"]``. Ranks
                are scaled by their bounds. ``diagnosis/curves.csv`` has the numbers with the
                inputs.

        Returns:
            The figure and a list of its axes.

        Raises:
            InputError: matplotlib is not installed, a metric was not measured or none is given, a
                curve is unknown, ax has fewer axes than metrics, or the file cannot be written.
        """
        axes = None if ax is None else axes_of(ax)
        few = self._shown()[: len(axes) if axes else None]
        names = [*few] if metrics is None else listed("metrics", metrics)
        return draw(self, path, axes, names, curves)

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {"layer": list(self.layers)}
        for metric, values in self.values.items():
            columns |= {metric: values, f"{metric}_std": self.std[metric]}
            if self.reference:
                columns[f"{metric}_reference"] = self.reference.values[metric]
        return columns

    def by_kind(self) -> dict[str, "Report"]:
        """Returns the rows of every type of nodes, whose layers are named ``layer[type]``."""
        kinds = [name.partition("[")[2].partition("]")[0] for name in self.layers]
        return {kind: self._of(kind, kinds) for kind in dict.fromkeys(kinds)}

    def _of(self, kind: str, kinds: list[str]) -> "Report":
        def own(values: Sequence[Any]) -> list[Any]:
            return [value for value, of in zip(values, kinds) if of == kind]

        values, std, counts = (
            {m: own(v) for m, v in of.items()} for of in (self.values, self.std, self.counts)
        )
        other = self.reference and self.reference._of(kind, kinds)
        rows: dict[str, Any] = {
            "layers": tuple(own(self.layers)),
            "bounds": tuple(own(self.bounds)),
        }
        return replace(self, values=values, std=std, counts=counts, reference=other, **rows)

    def _shown(self) -> tuple[str, ...]:
        return self.shown or tuple(self.values)

    def _rows(self) -> list[list[str]]:
        shown = self._shown()
        heads = [f"{name} {arrow(name)}".strip() for name in shown]
        cells = [[self._cell(metric, row) for metric in shown] for row in range(len(self.layers))]
        return [["layer", *heads], *([layer, *row] for layer, row in zip(self.layers, cells))]

    def _cell(self, metric: str, row: int) -> str:
        own = number(self.values[metric][row])
        return f"{own} ({number(self.reference.values[metric][row])})" if self.reference else own


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
    return [row[0].ljust(widths[0]), *cells]


def gathered(model: str, watch: Watch, wanted: Metrics) -> Report:
    """Returns means, standard deviations and counts of the measurements of a watch.

    Args:
        model: name of the model.
        watch: with the measurements of all calls.
        wanted: metrics given by the user; None: all that are available.

    Raises:
        InputError: none of the metrics is available, or no sample of a layer has two tokens.
    """
    layers, rows = _rows_of(watch)
    matrix = _of_maps(watch)
    single = _across(watch, wanted is not None) | _beside(watch, matrix)
    names = [str(m) for m in watch.measures if m in single or any(m in row for row in rows)]
    missing = [m for m in watch.measures if m not in names] if wanted is not None else []
    why = "edges or labels are not known, no attention map was seen, or there is one sample"
    if not names:
        raise InputError(f"metrics: cannot measure {', '.join(missing)}: {why}; give edges=")
    moments = {m: _moments([row.get(m) for row in rows]) for m in names if m not in single}
    values = {m: mean for m, (mean, _, _) in moments.items()} | single
    columns = (*COLUMNS, *(str(m) for m in watch.measures if isinstance(m, Pair)))
    of_all = {m: 1 if m == BESIDE else len(watch.sizes) for m in single}
    return Report(
        model=model,
        layers=layers,
        values={m: values[m] for m in names},
        std={m: moments[m][1] if m in moments else [None] * len(layers) for m in names},
        counts={m: moments[m][2] if m in moments else [of_all[m]] * len(layers) for m in names},
        samples=len(watch.sizes),
        tokens=(min(watch.sizes), max(watch.sizes)),
        unit=watch.unit,
        bounds=tuple(watch.bounds()),
        shown=() if wanted is not None else tuple(m for m in columns if m in names),
        attention_matrix=matrix,
        notes=(
            *_notes(layers, rows, watch, names, wanted is None),
            *(f"Not measured: {metric} ({why})." for metric in missing),
        ),
    )


def _moments(
    of_layers: Sequence[Tensor | None],
) -> tuple[list[float | None], list[float | None], list[int]]:
    """Means, standard deviations and counts of the samples with a value, layer by layer.

    A sample may have none, such as the MAD of a graph without edges.
    """
    rows = [_joined([]) if values is None else values for values in of_layers]
    x = pad_sequence(rows, batch_first=True, padding_value=torch.nan)
    x = x.masked_fill(~x.isfinite(), torch.nan)
    mean = x.nanmean(dim=1, keepdim=True)
    std = (x - mean).square().nanmean(dim=1).sqrt()
    return _numbers(mean[:, 0]), _numbers(std), x.isfinite().sum(dim=1).tolist()


def _rows_of(watch: Watch) -> tuple[tuple[str, ...], list[dict[str, Tensor]]]:
    """Returns the names of the layers, and what was measured in each, one value per sample."""
    several = {name for name, call in watch.values if call}
    layers = tuple(f"{n}#{i + 1}" if n in several else n for n, i in watch.values)
    rows = [{m: _joined(v) for m, v in row.items()} for row in watch.values.values()]
    single = _single(layers, rows)
    of_layers = zip(layers, watch.bounds())
    if all(not bound or layer in single for layer, bound in of_layers):
        raise InputError(
            f"{layers[0]}: every sample has fewer than two {watch.unit} that count, and similarity "
            "needs two; choose other layers, inputs or mask, or prefix=0"
        )
    return layers, [
        {m: v[:0] for m, v in row.items()} if layer in single else row
        for layer, row in zip(layers, rows)
    ]


def _single(layers: Sequence[str], rows: Sequence[Mapping[str, Tensor]]) -> list[str]:
    """Returns the layers whose samples have fewer than two tokens."""
    return [n for n, row in zip(layers, rows) if any(not len(values) for values in row.values())]


def _notes(
    layers: Sequence[str],
    rows: Sequence[Mapping[str, Tensor]],
    watch: Watch,
    names: Sequence[str],
    of_all: bool,
) -> Iterator[str]:
    yield from _left_out(layers, watch)
    yield from _missing(layers, rows, watch)
    for pair in (m for m in watch.measures if isinstance(m, Pair)):
        yield f"{pair}: the cosine of {watch.unit} {pair.places[0]} and {pair.places[1]}."
    if watch.sinks:
        yield "A part of the attention goes to a sink, which is no token: rows of the maps lack it."
    if watch.unit == "tokens":
        yield from _parts(layers, rows, watch.inputs)
    if any(m in names for m in OF_EDGES) and (watch.one_way or watch.repeated):
        yield (
            f"Edges: {watch.one_way} lack their reverse and {watch.repeated} are repeated, but "
            "dirichlet_energy and mad expect both directions of every edge, each once."
        )
    if "effective_rank" in names and not watch.plan.relations:
        yield from _bounds(layers, watch.bounds(), watch.unit)
    yield from _undefined(layers, rows)
    yield from watch.notes
    unseen = of_all and not any(m in names for m in OF_MAPS)
    known = unseen and any(is_model(module) for module in watch.plan.model.modules())
    if known and watch.layers.keys() - watch.images:
        yield (
            "No attention maps: these layers compute none of all their tokens that can be seen; "
            "name attention modules for those of windows, layers=…"
        )


def _missing(
    layers: Sequence[str], rows: Sequence[Mapping[str, Tensor]], watch: Watch
) -> Iterator[str]:
    """Says which layers have no values, or no row."""
    if single := _single(layers, rows):
        yield f"Not measured: {ends(single)}, with fewer than two {watch.unit} in each sample."
    if empty := [layer for layer, bound in zip(layers, watch.bounds()) if not bound]:
        yield f"Not measured: {ends(empty)}, without nodes of this type."
    if silent := watch.layers.keys() - {name.partition("[")[0] for name, _ in watch.values}:
        names = ends([name for name in watch.layers if name in silent])
        yield f"Not measured: {names}, which the model's forward does not call."


def _joined(values: list[Tensor]) -> Tensor:
    return torch.cat(values or [torch.empty(0, dtype=torch.float64)])


def _across(watch: Watch, asked: bool) -> dict[str, list[float | None]]:
    """Measures across samples, if there are enough or the user asks for them."""
    least = 2 if asked else SAMPLES
    found = {name: of for name, of in OF_SAMPLES.items() if name in watch.measures}
    several = [len(s.pooled) > 0 and s.count >= least for s in watch.across.values()]
    if not found or not any(several):
        return {}
    rows = [*zip(watch.across.values(), several)]
    return {n: [_finite(of(s)) if many else None for s, many in rows] for n, of in found.items()}


def _of_maps(watch: Watch) -> tuple[tuple[float | None, ...], ...]:
    """Mean cosines of rows of the maps of two layers; None for maps of other sizes."""
    maps = [watch.maps.get(row) for row in watch.values]
    if not watch.maps:
        return ()
    unit = [None if A is None else F.normalize(A.double(), dim=-1) for A in maps]
    return tuple(tuple(_cosine(A, B) for B in unit) for A in unit)


def _cosine(A: Tensor | None, B: Tensor | None) -> float | None:
    """Mean product of the rows of two maps, whose rows have norm 1."""
    if A is None or B is None or A.shape != B.shape:
        return None
    return torch.dot(A.flatten(), B.flatten()).item() / A[..., 0].numel()


def _beside(watch: Watch, matrix: Any) -> dict[str, list[float | None]]:
    before = [None, *(matrix[i][i - 1] for i in range(1, len(matrix)))]
    known = BESIDE in watch.measures and any(value is not None for value in before)
    return {BESIDE: before} if known else {}


def _undefined(layers: Sequence[str], rows: Sequence[Mapping[str, Tensor]]) -> Iterator[str]:
    """Says which measures have no finite number, in which layer first, and why if that is known."""
    classes = ", whose labels have fewer than two classes, or no class with two that differ"
    found: dict[str, list[str]] = {}  # where and why -> measures
    for name in dict.fromkeys(name for row in rows for name in row):
        some = name in OF_LABELS or name not in MEASURES  # for others, other notes name samples
        for layer, row in zip(layers, rows):
            values = row.get(name, torch.empty(0))
            count = int((~values.isfinite()).sum())
            if count and (some or count == len(values)):
                where = f"not defined in {count} of {len(values)} samples after {layer}"
                found.setdefault(where + classes * (name in OF_LABELS), []).append(name)
                break
    yield from (f"{ends(names)}: {where}." for where, names in found.items())


def _left_out(layers: Sequence[str], watch: Watch) -> Iterator[str]:
    """Says what is left out, and in which layers if it is not in all of them."""
    for what, rows in watch.left_out.items():
        found = [layer for layer, row in zip(layers, watch.values) if row in rows]
        some = f", in {len(found)} of {len(layers)} layers: {ends(found)}"
        yield f"Left out: {what}{some * (len(found) < len(layers))}."
    if short := sum(n < 2 for n in watch.sizes):
        of_nodes = watch.unit == "nodes"
        what = "graph{} of one node" if of_nodes else "sample{} of fewer than two tokens"
        yield f"Left out: {short} {what.format('s' * (short > 1))}."
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


def _bounds(layers: Sequence[str], bounds: Sequence[float], unit: str) -> Iterator[str]:
    """Says where the effective rank has other bounds, if layers differ in tokens or channels."""
    changes = [i for i in range(len(bounds)) if i == 0 or bounds[i] != bounds[i - 1]]
    if len(changes) > 1:
        found = ", ".join(f"{bounded(bounds[i])} from {layers[i]} on" for i in changes)
        yield f"The effective rank is at most the number of {unit} and of channels: {found}."


def _numbers(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _finite(value: Tensor) -> float | None:
    return value.item() if value.isfinite() else None
