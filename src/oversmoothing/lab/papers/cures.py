"""Compares methods against oversmoothing by depth, graph and network: ``make cures``.

    oversmoothing figure cures
    oversmoothing figure cures --graphs Cora --layers 2 8 --methods none residual
    oversmoothing figure cures --plan
    oversmoothing figure cures --study cures_methods

The cells are those of the tables with candidates in ``results/expected``, with the name of the
study (``cures``, or ``cures_methods``: more methods, searched among 16 candidates each): blocks are
graphs, readings networks, columns depths, and rows methods. In each cell, validation accuracy over
the tuning seeds chooses one candidate, which is run with all seeds.

Cells with results in ``results/<study>.csv`` or in the output folder are skipped. The CSV is
written after every cell; table and figure are written at the end, also if the study is stopped.
"""

import csv
import math
import statistics
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from omegaconf import DictConfig
from scipy.stats import false_discovery_control

from oversmoothing.errors import InputError, Problems, complain, meant
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.panels import LINES, extremes
from oversmoothing.lab.launch.command import run_all, same_runs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import known_result
from oversmoothing.lab.launch.script import whole
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.numbers import update
from oversmoothing.lab.report.tables import Cell, load
from oversmoothing.lab.report.verdict import Measured, paired
from oversmoothing.lab.store.files import write_text
from oversmoothing.lab.store.identity import run_id

BASELINE = "none"
RATE = 0.05  # of false discoveries
SHOWN = (2, 8, 32, 64)  # depths of the summary
GAIN, STRONGEST = "PuOr", 65.0  # colours of the map, and the points of the darkest
HEADING = "# Which method at which depth\n\n"
NO_BREAK = "\u00a0"
HEAD = ("graph", "network", "layers", "method", "n", "mean", "std", "difference", "p",
        "p_adjusted", "candidate", "values", "seeds")  # fmt: skip


class Place(NamedTuple):
    """Where a cell of the study stands: a method on a graph, in a network of one depth."""

    graph: str
    network: str
    layers: int
    method: str

    def command(self, whole: "Study") -> str:
        """Returns the command that measures the cell."""
        name = whole[self].about.of or whole[self].about.name
        study = "" if name == "cures" else f" STUDY={name}"
        return (
            f"make cures{study} GRAPHS={self.graph} NETWORKS={self.network} LAYERS={self.layers} "
            f"METHODS={self.method}"
        )


class Record(NamedTuple):
    """One seed of one candidate of a cell; accuracies, or ROC AUC, in percent at the best epoch."""

    graph: str
    network: str
    layers: int
    method: str
    candidate: str
    seed: int
    val_accuracy: float
    test_accuracy: float
    epoch: int
    run: str

    @property
    def place(self) -> Place:
        return Place(*self[:4])


class Comparison(NamedTuple):
    """The comparison of a method with the baseline on the same graph, network and depth.

    Args:
        difference: of the mean test accuracies, in points.
        p: two-sided, of a paired t-test over seeds; NaN with fewer than two of them.
        adjusted: p corrected for the number of all comparisons (Benjamini and Hochberg).
    """

    difference: float
    p: float
    adjusted: float

    @property
    def significant(self) -> bool:
        return self.adjusted < RATE


Study = Mapping[Place, Cell]
Found = Mapping[Place, tuple[str, Measured]]  # the chosen candidate and its test accuracy
Compared = Mapping[Place, Comparison]


@cache
def study(name: str = "cures") -> Study:
    """Returns the cells by place: by graph, then network, depth and method, as in the tables."""
    every = load(RESULTS / "expected", chosen=True)
    cells = [cell for cell in every if name in (cell.about.name, cell.about.of)]
    found = {Place(c.block, c.reading, int(c.column[2:]), c.key): c for c in cells}
    orders = [[*dict.fromkeys(names)] for names in zip(*found)]
    ordered = sorted(found, key=lambda place: [o.index(name) for o, name in zip(orders, place)])
    return {place: found[place] for place in ordered}


def select(whole: Study, **wanted: Sequence[str | int]) -> list[Place]:
    """Selects the places with these names (``graph``, ``network``, …); without names, all.

    Raises:
        InputError: a name that the study does not have.
    """
    for field, names in wanted.items():
        known = {str(getattr(place, field)) for place in whole}
        for name in names:
            if str(name) not in known:
                raise InputError(f"cures: no {field} {name!r}; {meant(str(name), sorted(known))}")
    return [p for p in whole if all(not v or getattr(p, f) in v for f, v in wanted.items())]


def config_of(cell: Cell, candidate: Sequence[str], extra: Sequence[str] = ()) -> DictConfig:
    """Composes the config of a candidate of a cell."""
    return compose_config([*cell.words, *candidate, *extra])


def seeds_of(cell: Cell) -> list[int]:
    """Returns the seeds of the chosen candidate."""
    return _seeds((f"experiment={cell.experiment}", *(w for w in cell.overrides if "seeds" in w)))


@cache
def _seeds(words: tuple[str, ...]) -> list[int]:
    return list(compose_config([*words]).seeds)


def read(path: Path) -> list[Record]:
    """Reads the records; empty if there is no file.

    Raises:
        InputError: the file has another form.
    """
    if not path.exists():
        return []
    kinds = Record.__annotations__
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = [*csv.DictReader(file)]
        return [Record(**{key: kinds[key](line[key]) for key in kinds}) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: a line is not a record ({error}); restore it with git") from None


def write(path: Path, records: Iterable[Record]) -> Path:
    """Writes the records, sorted."""
    return write_csv(path, Record._fields, sorted(set(records)))


def by_candidate(records: Iterable[Record]) -> dict[Place, dict[str, list[Record]]]:
    """Groups records: place -> candidate -> records."""
    found: dict[Place, dict[str, list[Record]]] = {}
    for record in records:
        found.setdefault(record.place, {}).setdefault(record.candidate, []).append(record)
    return found


def choose(cell: Cell, runs: Mapping[str, Sequence[Record]]) -> tuple[str, ...] | None:
    """Returns the candidate with the highest mean validation accuracy over the tuning seeds.

    If several are equal, it is the first. It is None until all candidates have all seeds.

    Args:
        runs: records by candidate.
    """
    means = {}
    for words in cell.candidates:
        found = {r.seed: r.val_accuracy for r in runs.get(" ".join(words), ())}
        if not found.keys() >= set(cell.about.tuning_seeds):
            return None
        means[words] = statistics.fmean(found[seed] for seed in cell.about.tuning_seeds)
    return max(means, key=means.__getitem__)


def measure(whole: Study, records: Iterable[Record]) -> Found:
    """Returns the chosen candidates and their test accuracy, for the cells with all seeds."""
    found = {}
    for place, runs in by_candidate(records).items():
        if place not in whole or (words := choose(whole[place], runs)) is None:
            continue
        name, seeds = " ".join(words), seeds_of(whole[place])
        test = {r.seed: r.test_accuracy for r in runs[name] if r.seed in seeds}
        if len(test) == len(seeds):
            found[place] = name, Measured((*test.values(),), runs[name][0].run, 0.0, (*test,))
    return found


def compare(found: Found) -> Compared:
    """Compares every measured cell with its baseline if that is also measured."""
    p, difference = {}, {}
    for place, (_, own) in found.items():
        base = found.get(place._replace(method=BASELINE))
        if base and place.method != BASELINE:
            values = [dict(zip(of.seeds, of.values)) for of in (own, base[1])]
            p[place], difference[place] = paired(*values).p, own.mean - base[1].mean
    known = [place for place in p if math.isfinite(p[place])]
    adjusted = dict(zip(known, map(float, false_discovery_control([p[c] for c in known]))))
    return {c: Comparison(difference[c], p[c], adjusted.get(c, math.nan)) for c in p}


def run_cell(
    place: Place, cell: Cell, known: Sequence[Record], extra: Sequence[str], jobs: int = 1
) -> list[Record]:
    """Runs all candidates with the tuning seeds and the chosen one with all; returns the records.

    Args:
        known: records of the cell; their seeds are not run again. Records of other runs, such as
            those of an earlier version, are ignored.
        extra: overrides that say how to compute, such as ``device=cpu``.
        jobs: number of candidates side by side.

    Raises:
        Problems: runs failed; the error of each is printed before.
    """
    records = today({place: cell}, known)
    every = [" ".join(words) for words in cell.candidates]
    records += _run(place, cell, every, cell.about.tuning_seeds, records, extra, jobs)
    best = choose(cell, by_candidate(records)[place])
    return records + _run(place, cell, [" ".join(best)], seeds_of(cell), records, extra, jobs)


def today(whole: Study, known: Sequence[Record]) -> list[Record]:
    """Removes records of runs that are not runs of this version."""
    keys = {(record.place, record.candidate) for record in known}
    ids = {key: run_id(config_of(whole[key[0]], key[1].split())) for key in keys}
    return [record for record in known if record.run == ids[record.place, record.candidate]]


def _run(
    place: Place,
    cell: Cell,
    candidates: Sequence[str],
    seeds: Sequence[int],
    known: Sequence[Record],
    extra: Sequence[str],
    jobs: int,
) -> list[Record]:
    """Runs candidates with the seeds that have no record, and returns their records."""
    have = {(record.candidate, record.seed) for record in known}
    configs = {}
    for name in candidates:
        if missing := [seed for seed in seeds if (name, seed) not in have]:
            configs[name] = config_of(cell, name.split(), extra)
            configs[name].seeds = missing
    if failed := run_all([*configs.values()], jobs):
        raise Problems([f"{', '.join(map(str, place))}: {line}" for line in failed])
    return [
        Record(
            *(*place, name, seed),
            *(round(own[key], 4) for key in (cell.metric.replace("test", "val"), cell.metric)),
            *(own["epoch"], result["id"]),
        )
        for name, config in configs.items()
        for result in [known_result(config)]
        for seed, own in ((seed, result["seeds"][str(seed)]) for seed in config.seeds)
    ]


def main(argv: list[str]) -> int:
    """Runs the missing cells, then writes CSV, table and figure; returns 1 if a run failed."""
    options = arguments(argv)
    same_runs(options.overrides, next(iter(study().values())).words)
    names = {name: getattr(options, f"{name}s") for name in ("graph", "network", "method")}
    whole, file = study(options.study), f"{options.study}.csv"
    wanted = select(whole, **names, layers=options.layers)
    path = options.target / file
    known = [*{*read(RESULTS / file), *read(path)}]
    done = measure(whole, today(whole, known) if options.earlier else known)
    missing = sorted((p for p in wanted if p not in done), key=lambda p: whole[p].cost)
    if options.plan:
        print(*(p.command(whole) for p in missing), f"{len(missing)} cells are missing", sep="\n")
        return 0
    write(path, known)
    failed = 0 if options.draw else _run_cells(whole, missing, path, options)
    written = write_all(whole, read(path), options.target, options.pdf, options.study)
    print(path, *written, sep="\n")
    return int(failed > 0)


def _run_cells(whole: Study, missing: Sequence[Place], path: Path, options: Namespace) -> int:
    """Runs cells and writes the CSV after each; returns how many failed."""
    failed = 0
    for number, place in enumerate(missing, start=1):
        records = read(path)
        own = [record for record in records if record.place == place]
        try:
            found = run_cell(place, whole[place], own, options.overrides, options.jobs)
        except InputError as error:
            complain(*error.lines)
            failed += 1
            continue
        write(path, {*records} - {*own} | {*found})
        print(f"cell {number} of {len(missing)}: {', '.join(map(str, place))}", flush=True)
    return failed


def write_all(
    whole: Study, records: Sequence[Record], results: Path, pdf: bool, name: str = "cures"
) -> list[Path]:
    """Prints the summary, writes all files and returns their paths."""
    found = measure(whole, records)
    compared = compare(found)
    tables = results / "tables"
    paths = [write_csv(tables / f"{name}.csv", HEAD, _rows(whole, found, compared))]
    text = summary(whole, found, compared) + _earlier(whole, records, found)
    write_text(tables / f"{name}.md", f"{HEADING}{text}\n\n{_every_graph(whole, found, compared)}")
    paths.append(tables / f"{name}.md")
    if compared:
        paths += save(draw(whole, compared), results / "figures" / name, pdf)
    print(text)
    return paths + update(results)


def gains(whole: Study, compared: Compared) -> dict[str, dict[str, dict[int, list[Comparison]]]]:
    """Returns the comparisons in the first network by group of graphs, method and depth."""
    network = next(iter(whole)).network
    own = [place for place in compared if place.network == network]
    depths = [depth for depth in SHOWN if any(place.layers == depth for place in own)]
    groups = {place.graph: cell.about.blocks[place.graph].group for place, cell in whole.items()}
    methods = dict.fromkeys(place.method for place in whole if place.method != BASELINE)
    found = {
        group: {method: {depth: [] for depth in depths} for method in methods}
        for group in dict.fromkeys(groups.values())
    }
    for place in own:
        if place.layers in depths:
            found[groups[place.graph]][place.method][place.layers].append(compared[place])
    return found


def summary(whole: Study, found: Found, compared: Compared) -> str:
    """Returns the gains of each method in the first network, by depth and group of graphs."""
    network = next(iter(whole)).network
    groups = {place.graph: cell.about.blocks[place.graph].group for place, cell in whole.items()}
    parts = []
    for group, by_method in gains(whole, compared).items():
        depths = [*next(iter(by_method.values()), ())]
        plain = [
            ", ".join(
                f"{place.graph} {measured.mean:.1f}"
                for place, (_, measured) in found.items()
                if place[1:] == (network, depth, BASELINE) and groups[place.graph] == group
            )
            for depth in depths
        ]
        rows = [[f"{BASELINE}: accuracy", *(text or "missing" for text in plain)]]
        rows += [[method, *map(_effect, of.values())] for method, of in by_method.items()]
        parts.append(table([f"{group} graphs", *(f"L = {d}" for d in depths)], rows))
    done, every = len(found), len(whole)
    plan = f"; `make cures PLAN=1` lists the {every - done} others" if done < every else ""
    return "\n\n".join([*parts, f"{done} of {every} cells are measured{plan}."])


def _effect(compared: Sequence[Comparison]) -> str:
    """Returns the mean difference over graphs, and the counts of significant differences."""
    if not compared:
        return "missing"
    better = sum(c.significant and c.difference > 0 for c in compared)
    worse = sum(c.significant and c.difference < 0 for c in compared)
    text = _points(statistics.fmean(c.difference for c in compared))
    counted = f"({better} ↑ {worse} ↓ of {len(compared)})".replace(" ", NO_BREAK)
    return f"{text} {counted}"


def _points(mean: float) -> str:
    return f"{mean:+.1f}".replace("-", "−") if abs(mean) >= 0.05 else "0.0"


def _earlier(whole: Study, records: Sequence[Record], found: Found) -> str:
    """Says how many of the measured cells are of an earlier version."""
    shown = [r for r in records if r.place in found and r.candidate == found[r.place][0]]
    cells = {record.place for record in set(shown) - set(today(whole, shown))}
    if not cells:
        return ""
    number = "All" if len(cells) == len(found) else f"{len(cells)} of the"
    return (
        f" {number} measured cells were run by an earlier version of this package, "
        "which drew other random numbers for the same seeds; `make cures EARLIER=1` measures them "
        "again."
    )


def _every_graph(whole: Study, found: Found, compared: Compared) -> str:
    """Returns a table of methods × depths for each network and graph, with missing commands."""
    n = len(seeds_of(next(iter(whole.values()))))
    parts = [
        f"## Every graph\n\nTest accuracy, %: mean ± std (ddof = 1), n = {n}. "
        f"↑ ↓: better or worse than {BASELINE}, paired t-test at a false discovery rate of 5 % "
        "over all comparisons of this page."
    ]
    networks = dict.fromkeys(place.network for place in whole)
    graphs = dict.fromkeys(place.graph for place in whole)
    for network in networks:
        for graph in graphs:
            own = [place for place in whole if place[:2] == (graph, network)]
            rows: dict[str, list[str]] = {}
            for place in own:
                rows.setdefault(place.method, []).append(_shown(place, found, compared))
            head = [f"{network}, {graph}", *dict.fromkeys(f"L = {p.layers}" for p in own)]
            parts += [table(head, [[method, *texts] for method, texts in rows.items()])] * bool(own)
    missing = [place.command(whole) for place in whole if place not in found]
    if missing:
        parts.append("<details><summary>Commands of the missing cells</summary>\n")
        parts.append("```\n" + "\n".join(missing) + "\n```\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _shown(place: Place, found: Found, compared: Compared) -> str:
    if place not in found:
        return "missing"
    _, own = found[place]
    text = f"{own.mean:.1f} ± {own.std:.1f}"
    comparison = compared.get(place)
    if comparison is None or not comparison.significant:
        return text
    return f"{text} {'↑' if comparison.difference > 0 else '↓'}"


def _rows(whole: Study, found: Found, compared: Compared) -> list[list[object]]:
    rows = []
    for place in whole:
        if place in found:
            (candidate, own), beside = found[place], compared.get(place)
            numbers = [f"{x:.3g}" for x in beside] if beside else [""] * 3
            means = [f"{own.mean:.2f}", f"{own.std:.2f}"]
            each = [" ".join(map(str, of)) for of in (own.values, own.seeds)]
            rows.append([*place, own.n, *means, *numbers, candidate, *each])
    return rows


@matplotlib.rc_context(LINES | {"axes.grid": False})
def draw(whole: Study, compared: Compared) -> Figure:
    """Draws the mean gain of each method by depth, in points: a map for each group of graphs."""
    found = gains(whole, compared)
    methods = [*next(iter(found.values()))]
    figure = Figure(figsize=(5.2, 1.2 + 0.24 * len(methods)), layout="constrained")
    axes = figure.subplots(1, len(found), sharey=True, squeeze=False).flat
    for (group, by_method), axis in zip(found.items(), axes):
        _map(axis, by_method)
        axis.set_title(f"{group} graphs", fontsize=9)
    axes[0].set_yticks(range(len(methods)), [method.replace("+", " + ") for method in methods])
    figure.suptitle(_finding(found), fontsize=9)
    figure.supxlabel("layers, and number of graphs; *: fewer graphs; hatched: missing", fontsize=8)
    return figure


def _map(axis: Axes, by_method: Mapping[str, Mapping[int, Sequence[Comparison]]]) -> None:
    """Draws a cell for each method and depth, with the mean difference from no method."""
    depths = [*next(iter(by_method.values()))]
    most = {depth: max(len(of[depth]) for of in by_method.values()) for depth in depths}
    axis.set(xlim=(-0.5, len(depths) - 0.5), ylim=(len(by_method) - 0.5, -0.5))
    for y, of in enumerate(by_method.values()):
        for x, (depth, cells) in enumerate(of.items()):
            corner = (x - 0.5, y - 0.5)
            if not cells:
                axis.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="////", color="0.8", lw=0))
                continue
            mean = statistics.fmean(cell.difference for cell in cells)
            colour = colormaps[GAIN](0.5 + mean / (2 * STRONGEST))
            axis.add_patch(Rectangle(corner, 1, 1, color=colour, lw=0))
            text = _points(mean) + "*" * (len(cells) < most[depth])
            dark = abs(mean) > 0.7 * STRONGEST
            axis.text(x, y, text, ha="center", va="center", color="w" if dark else "k", fontsize=8)
    axis.set_xticks(range(len(depths)), [f"{d}\n{most[d]}" for d in depths])
    axis.tick_params(bottom=False, left=False)
    axis.spines[:].set_visible(False)


def _finding(found: Mapping[str, Mapping[str, Mapping[int, Sequence[Comparison]]]]) -> str:
    """Says which method gains most and least at the greatest depth, in the first group."""
    group, by_method = next(iter(found.items()))
    last = {
        method: statistics.fmean(cell.difference for cell in [*of.values()][-1])
        for method, of in by_method.items()
        if of and [*of.values()][-1]
    }
    depths = [*next(iter(by_method.values()))]
    if not last:
        return "gain over no method, in points"
    return extremes(f"Points gained, {depths[-1]} layers, {group}", last, 1)


def arguments(argv: list[str]) -> Namespace:
    """Reads the command line."""
    parser = figure_parser(__doc__)
    for name in ("graphs", "networks", "methods"):
        parser.add_argument(f"--{name}", nargs="*", default=[], help=f"only these {name}")
    parser.add_argument("--layers", nargs="*", type=whole(), default=[], help="only these depths")
    parser.add_argument(
        "--study", choices=("cures", "cures_methods"), default="cures", help="its cells"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--plan", action="store_true", help="list the missing cells, run nothing")
    either.add_argument("--draw", action="store_true", help="write table and figure, run nothing")
    parser.add_argument("--earlier", action="store_true", help="repeat runs of earlier versions")
    parser.add_argument("--jobs", type=whole(), default=1, help="processes side by side")
    parser.add_argument("overrides", nargs="*", help="after --: overrides for all runs")
    return parser.parse_args(argv)
