"""Measures of smoothness before and after training, against the accuracy, in the study of methods.

    oversmoothing figure measures
    oversmoothing figure measures --graphs Cora --layers 32
    oversmoothing figure measures --trained --graphs Cora --layers 32

``make cures`` trained every candidate with one seed. Without ``--trained``, the network of each
candidate is measured before training, with the weights of that seed: as the first training step
sees it, but without dropout, which would add noise of full rank. With ``--trained``, the chosen
candidates are trained again with three seeds and measured at the epoch that is tested, which takes
about an hour of a CPU core for each graph with 32 layers.

``measures.csv`` has the measures of the last hidden layer and of the output, before training also
the norm of the gradient of all weights. The figure has Spearman's correlation of each with the test
accuracy. Networks with results are not measured again.
"""

import tempfile
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from omegaconf import DictConfig
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn.functional import cross_entropy

from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.panels import LINES
from oversmoothing.lab.launch.execute import keep_freed_memory, parts
from oversmoothing.lab.launch.script import OUTPUTS, whole
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.papers.cures_cells import (
    Place,
    Record,
    Study,
    by_candidate,
    config_of,
    measure,
    read,
    select,
    study,
)
from oversmoothing.lab.store.files import alone, read_csv
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes import FullBatchLoop
from oversmoothing.metrics import graphs, smoothness

OF_NODES = (
    smoothness.cosine,
    smoothness.mean_share,
    smoothness.effective_rank,
    smoothness.centered_stable_rank,
)
OF_EDGES = (graphs.mad, graphs.dirichlet_energy)
MEASURES = {  # column -> name in the figure
    "gradient": "norm of the gradient",
    "dirichlet_energy": "Dirichlet energy",
    "mad": "MAD",
    "cosine": "cosine",
    "mean_share": "mean share",
    "effective_rank": "effective rank",
    "centered_stable_rank": "centered stable rank",
    "output_cosine": "output: cosine",
    "output_mean_share": "output: mean share",
    "output_effective_rank": "output: effective rank",
    "output_centered_stable_rank": "output: centered stable rank",
    "output_centered_effective_rank": "output: centered effective rank",
}
SEEDS = (0, 1, 2)  # of the networks that are trained again
DROPOUT = "backbone.dropout"
SHOWN = ("Cora", 32, "output_centered_stable_rank")  # graph, layers and measure of the last panel


class Row(NamedTuple):
    """One network; ``trained`` is 1 after its training; ``values`` are those of MEASURES."""

    graph: str
    layers: int
    method: str
    run: str
    seed: int
    trained: int
    test_accuracy: float
    values: tuple[float, ...]

    def value(self, name: str) -> float:
        return self.values[[*MEASURES].index(name)]


CORRELATIONS = ("graph", "layers", "trained", "networks", "measure", "methods", "rho", "p")
HEADER = (*Row._fields[:-1], *MEASURES)
Rows = dict[tuple[Any, ...], Row]


def main(argv: list[str]) -> int:
    """Measures the missing networks, then writes CSV and figure."""
    parser = figure_parser(__doc__)
    parser.add_argument("--graphs", nargs="+", default=[], help="measure only these graphs")
    parser.add_argument("--layers", nargs="+", type=whole(), default=[32], help="default: 32")
    parser.add_argument("--trained", action="store_true", help="train the chosen candidates")
    options = parser.parse_args(argv)
    path = options.target / "measures.csv"
    files = (RESULTS / "measures.csv", OUTPUTS / "measures.csv", path)
    rows = {row[:6]: row for file in files for row in load(file)}
    if not select(study(), graph=options.graphs, layers=options.layers):
        raise InputError("measures: the study has no networks of these graphs and layers")
    add(path, rows.values())
    keep_freed_memory()
    for found in (trained if options.trained else untrained)(options, rows):
        add(path, found)
        print(f"{', '.join(map(str, found[0][:3]))}: {len(found)} networks", flush=True)
    print(path)
    stem = options.target / "figures/measures"
    with alone(path):  # a command that ends at the same time draws after this one, all networks
        every = load(path)  # as rounded as the file
        print(write_csv(stem.with_suffix(".csv"), CORRELATIONS, correlations(every)))
        print(*save(draw(every), stem, options.pdf), sep="\n")
    return 0


def load(path: Path) -> list[Row]:
    """Reads the networks of a file; empty if there is none."""
    return [*map(_row, read_csv(path))] if path.exists() else []


def _row(line: Mapping[str, str]) -> Row:
    return Row(
        *(line["graph"], int(line["layers"]), line["method"], line["run"], int(line["seed"])),
        *(int(line["trained"]), float(line["test_accuracy"])),
        tuple(float(line[name] or "nan") for name in MEASURES),
    )


def add(path: Path, rows: Iterable[Row]) -> None:
    """Adds networks to a file; other processes may add theirs at the same time."""
    with alone(path):
        every = {row[:6]: row for row in (*load(path), *rows)}
        shown = (
            (*row[:-1], *("" if value != value else f"{value:.4g}" for value in row.values))
            for row in sorted(every.values())
        )
        write_csv(path, HEADER, shown)


def untrained(options: Namespace, rows: Rows) -> Iterator[list[Row]]:
    """Measures the candidates of each cell before training, with the first tuning seed."""
    every, records = study(), by_candidate(read(RESULTS / "cures.csv"))
    for place in select(every, graph=options.graphs, layers=options.layers):
        seed = every[place].about.tuning_seeds[0]
        runs = [r for own in records.get(place, {}).values() for r in own if r.seed == seed]
        missing = [run for run in runs if _key(run, 0) not in rows]
        if missing:
            yield [*before(every, place, missing)]


def _key(run: Record, trained: int) -> tuple[str, int, str, str, int, int]:
    return run.graph, run.layers, run.method, run.run, run.seed, trained


def before(every: Study, place: Place, runs: Iterable[Record]) -> Iterator[Row]:
    """Measures untrained networks of a cell; those that differ in dropout or recipe only once."""
    graph: Graph | None = None
    known: dict[tuple[str, ...], tuple[float, ...]] = {}
    for run in runs:
        words = tuple(w for w in run.candidate.split() if not w.startswith(("trainer.", DROPOUT)))
        if words not in known:
            config = config_of(every[place], [*words, f"{DROPOUT}=0", f"seeds=[{run.seed}]"])
            graph = build(config.data) if graph is None else graph
            known[words] = at_start(config, graph)
        yield Row(*_key(run, 0), run.test_accuracy, known[words])


def at_start(config: DictConfig, graph: Graph) -> tuple[float, ...]:
    """Measures the network of a config with one seed in its first training step."""
    network = build(config.task).network(parts(config, graph), config.seeds, torch.device("cpu"))
    network.train()
    hidden: list[Tensor] = []
    output = network(hidden)
    [train] = graph.masks(config.seeds)["train"]
    cross_entropy(output[0, train], graph.y[train]).backward()
    own = (p.grad.double().square().sum() for p in network.parameters() if p.grad is not None)
    found = {"gradient": [float(sum(own)) ** 0.5], **of_layers(hidden, output, graph.edges)}
    return tuple(found[name][0] for name in MEASURES)


@torch.no_grad()
def of_layers(hidden: Sequence[Tensor], output: Tensor, edges: Tensor) -> dict[str, list[float]]:
    """Measures the last hidden layer and the output of each network.

    Shapes: hidden (S, N, C) each, of which the last may be the output; output (S, N, K).
    """
    last = smoothness.Tokens(hidden[-2] if torch.equal(hidden[-1], output) else hidden[-1])
    found = {f.__name__: f(last) for f in OF_NODES} | {f.__name__: f(last, edges) for f in OF_EDGES}
    found |= {f"output_{f.__name__}": f(smoothness.Tokens(output)) for f in OF_NODES}
    differences = output.double() - output.double().mean(dim=-2, keepdim=True)
    found["output_centered_effective_rank"] = smoothness.effective_rank(differences)
    return {name: values.tolist() for name, values in found.items()}


class _Loop(FullBatchLoop):
    """Keeps the measures of each evaluation beside its accuracies."""

    def _layers(self) -> list[dict[str, Any]]:
        hidden: list[Tensor] = []
        with torch.no_grad():
            self.model.eval()
            output = self.model(hidden)
        found = of_layers(hidden, output, self.graph.edges)
        seeds = range(len(output))
        return [{name: [values[s]] for name, values in found.items()} for s in seeds]


def trained(options: Namespace, rows: Rows) -> Iterator[list[Row]]:
    """Trains the chosen candidate of each cell and measures it."""
    every, records = study(), read(RESULTS / "cures.csv")
    chosen = measure(every, records)
    for place in select(every, graph=options.graphs, layers=options.layers):
        candidate = chosen[place][0].split() if place in chosen else []
        own = [r for r in records if r.place == place and r.candidate == " ".join(candidate)]
        missing = [r for r in own if r.seed in SEEDS and _key(r, 1) not in rows]
        if missing:
            config = config_of(every[place], [*candidate, f"seeds={[r.seed for r in missing]}"])
            yield [
                Row(*_key(run, 1), round(found["test_accuracy"], 4), found["values"])
                for run, found in zip(missing, after(config))
            ]


def after(config: DictConfig) -> list[dict[str, Any]]:
    """Trains the networks of a config; returns accuracy and measures of the tested epoch."""
    graph, seeds = build(config.data), [*config.seeds]
    given = parts(config, graph)
    network = build(config.task).network(given, seeds, torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / graph.name, seeds)
        loop = _Loop(network, graph, given.trainer, recorder, layer_metrics=True)
        loop.fit()
    nan = [float("nan")]
    return [
        own | {"values": tuple(own["layers"].get(name, nan)[0] for name in MEASURES)}
        for own in loop.chosen
    ]


def by_method(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Groups networks by their method."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.method, []).append(row)
    return found


def spearman(rows: Iterable[Row], name: str) -> tuple[float, float, int]:
    """Spearman's ρ of a measure and the test accuracy over methods, its p, and their number.

    A method counts with the means over its networks, since these are not independent.
    """
    means = [
        (fmean(row.value(name) for row in own), fmean(row.test_accuracy for row in own))
        for own in by_method(rows).values()
    ]
    rho, p = spearmanr(*zip(*means))
    return float(rho), float(p), len(means)


def correlations(rows: Sequence[Row]) -> Iterator[tuple[Any, ...]]:
    """Yields Spearman's ρ over methods and its p, by measure, for all networks and for one GCN."""
    for networks, chosen in (("all", rows), ("gcn", in_gcn(rows))):
        for key, own in panels_of(chosen).items():
            for name in MEASURES:
                rho, p, methods = spearman(own, name)
                yield *key, networks, name, methods, f"{rho:.3f}", f"{p:.2g}"


def in_gcn(rows: Iterable[Row]) -> list[Row]:
    """Selects the methods that act in the GCN of the study; the others are other networks."""
    cells = study().items()
    other = {p.method for p, c in cells if any(w.startswith("backbone=") for w in c.overrides)}
    return [row for row in rows if row.method not in other]


def panels_of(rows: Sequence[Row]) -> Mapping[tuple[str, int, int], list[Row]]:
    """Groups networks by graph, layers and moment."""
    order = [*dict.fromkeys(place.graph for place in study())]
    found = {(row.graph, row.layers, row.trained) for row in rows}
    keys = sorted(found, key=lambda key: (order.index(key[0]), *key[1:]))
    return {key: [r for r in rows if (r.graph, r.layers, r.trained) == key] for key in keys}


@matplotlib.rc_context(LINES)
def draw(rows: Sequence[Row]) -> Figure:
    """Draws the correlations before and after training, and the networks of one cell."""
    graph, deepest, name = SHOWN
    deep = [row for row in rows if row.layers == deepest]
    first, after = ([row for row in deep if row.trained == moment] for moment in (0, 1))
    figure = Figure(figsize=(7.2, 3.2), layout="constrained", facecolor="white")
    *axes, last = figure.subplots(1, 4, width_ratios=(1, 1, 1, 1.2))
    markers = dict(zip(dict.fromkeys(place.graph for place in study()), "osv^PD"))
    titles = ("before training,\nall networks", "before training,\nmethods in a GCN",
              "after training,\nall networks")  # fmt: skip
    for axis, title, own in zip(axes, titles, (first, in_gcn(first), after)):
        _draw_correlations(axis, own, markers)
        axis.set_title(title, fontsize=8.5)
    axes[0].set_yticks(range(len(MEASURES)), [*MEASURES.values()], fontsize=8)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3,
                  frameon=False, fontsize=8, handletextpad=0.1)  # fmt: skip
    own = panels_of(rows).get((graph, deepest, 0), [])
    last.plot([row.value(name) for row in own], [row.test_accuracy for row in own], "k.",
              markersize=4, alpha=0.5)  # fmt: skip
    last.set(xlabel=MEASURES[name].replace(": ", ",\n"), ylabel="test accuracy, %")
    last.set_title(f"every network\non {graph}, before", fontsize=8.5)
    return figure


def _draw_correlations(axis: Axes, rows: Sequence[Row], markers: Mapping[str, str]) -> None:
    """Draws one marker for each measure and graph."""
    for (graph, *_), own in panels_of(rows).items():
        values = [spearman(own, name)[0] for name in MEASURES]
        axis.plot(values, range(len(values)), markers[graph], markersize=4, alpha=0.7, label=graph)
    axis.axvline(0, color="#666666", linewidth=0.8)
    axis.set_yticks(range(len(MEASURES)), [])
    axis.set(xlabel="Spearman's ρ", xlim=(-1, 1), ylim=(-0.5, len(MEASURES) - 0.5))
