"""Computes means and standard deviations of the measurements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from oversmoothing.diagnosis.measures import OF_EDGES, Metrics
from oversmoothing.diagnosis.report import Report
from oversmoothing.diagnosis.watch import Watch
from oversmoothing.errors import InputError


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
