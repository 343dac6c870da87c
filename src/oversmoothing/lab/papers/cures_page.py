"""What a study of methods by depth found: tests and tables.

Each cell is compared with its baseline over seeds or splits (paired t-tests). A method at one depth
is then compared over all graphs: a t-test of the mean differences, one for each graph, as in a
mixed model with a random effect of the graph. Each of the two families of tests is corrected for
its number (Benjamini, Hochberg, 1995).
"""

import math
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from scipy.stats import false_discovery_control, ttest_1samp

from oversmoothing.lab.papers.cures_cells import (
    BASELINE,
    Found,
    Place,
    Record,
    Study,
    by_candidate,
    choose,
    seeds_of,
)  # fmt: skip
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.tables import Cell
from oversmoothing.lab.report.verdict import ROUNDING, paired

RATE = 0.05  # of false discoveries
LEAST = 6  # graphs that a test over graphs needs: with 5, even a sign test has p > 0.05
OPTIONS = """## What the options of all methods add

Difference in validation accuracy between the candidates with one value of an option and those with
the other, in points, averaged over the methods and graphs. In brackets: in how many cells it is
positive. Every two options are balanced over the candidates of a cell."""
NO_BREAK = "\u00a0"
HEAD = ("graph", "network", "layers", "method", "n", "mean", "std", "difference", "p",
        "p_adjusted", "candidate", "values", "seeds")  # fmt: skip


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


class Pooled(NamedTuple):
    """The comparison of a method with the baseline at one depth, over graphs.

    Args:
        difference: mean over graphs of the differences of mean accuracies, in points.
        graphs: number of graphs.
        p: two-sided, of a t-test of the graphs' differences; NaN with fewer than six graphs.
        adjusted: p corrected for the number of methods and depths (Benjamini and Hochberg).
    """

    difference: float
    graphs: int
    p: float
    adjusted: float


Compared = Mapping[Place, Comparison]
Key = TypeVar("Key", bound=Hashable)


def compare(found: Found) -> Compared:
    """Compares every measured cell with its baseline if that is also measured."""
    p, difference = {}, {}
    for place, (_, own) in found.items():
        base = found.get(place._replace(method=BASELINE))
        if base and place.method != BASELINE:
            values = [dict(zip(of.seeds, of.values)) for of in (own, base[1])]
            p[place], difference[place] = paired(*values).p, own.mean - base[1].mean
    adjusted = _corrected(p)
    return {c: Comparison(difference[c], p[c], adjusted[c]) for c in p}


def pool(compared: Compared, network: str) -> dict[tuple[str, int], Pooled]:
    """Compares each method at each depth over the graphs that are measured in a network."""
    found: dict[tuple[str, int], list[float]] = {}
    for place, of in compared.items():
        if place.network == network:
            found.setdefault((place.method, place.layers), []).append(of.difference)
    p = {key: _over_graphs(differences) for key, differences in found.items()}
    adjusted = _corrected(p)
    return {
        key: Pooled(statistics.fmean(of), len(of), p[key], adjusted[key])
        for key, of in found.items()
    }


def _over_graphs(differences: Sequence[float]) -> float:
    """Returns p of a t-test against 0; NaN for too few graphs or equal differences."""
    if len(differences) < LEAST or len({*differences}) == 1:
        return math.nan
    return float(ttest_1samp(differences, 0).pvalue)


def _corrected(p: Mapping[Key, float]) -> dict[Key, float]:
    """Corrects p for the number of tests that have one; the others stay NaN."""
    known = [key for key, value in p.items() if math.isfinite(value)]
    adjusted = false_discovery_control([p[key] for key in known])
    return dict.fromkeys(p, math.nan) | dict(zip(known, map(float, adjusted)))


def page(whole: Study, records: Sequence[Record], found: Found) -> str:
    """Returns the text of the page: the summary, the effects of the options, and every graph."""
    compared, options = compare(found), options_table(whole, records)
    parts = ["# Which method at which depth", summary(whole, found, compared)]
    parts += [OPTIONS, options] if options else []
    return "\n\n".join([*parts, _every_graph(whole, found, compared)])


def asked(whole: Study, wanted: Sequence[Place], found: Found) -> str:
    """Returns the cells that a command asks for: of a part each cell, of the study a summary."""
    compared = compare(found)
    if len(wanted) == len(whole):
        return summary(whole, found, compared)
    how = f"Test accuracy, %, mean ± std over seeds; ↑ ↓: significantly other than {BASELINE}"
    return "\n\n".join([*_tables(wanted, found, compared), f"{how}."])


def gains(whole: Study, compared: Compared) -> dict[str, dict[str, dict[int, list[Comparison]]]]:
    """Returns the comparisons in the first network by group of graphs, method and depth."""
    network = next(iter(whole)).network
    own = [place for place in compared if place.network == network]
    depths = sorted({place.layers for place in own})
    groups = {place.graph: cell.about.blocks[place.graph].group for place, cell in whole.items()}
    methods = dict.fromkeys(place.method for place in whole if place.method != BASELINE)
    planned = {(groups[place.graph], place.layers) for place in whole if place.network == network}
    found = {
        group: {m: {depth: [] for depth in depths if (group, depth) in planned} for m in methods}
        for group in dict.fromkeys(groups.values())
    }
    for place in own:
        found[groups[place.graph]][place.method][place.layers].append(compared[place])
    return found


def summary(whole: Study, found: Found, compared: Compared) -> str:
    """Returns what each method adds in the first network, by depth: over all graphs, by group.

    Methods without a measured cell are named at the end.
    """
    network = next(iter(whole)).network
    pooled = pool(compared, network)
    parts = [_over_all(dict.fromkeys(place.method for place in whole), compared, pooled, network)]
    for group, by_method in gains(whole, compared).items():
        depths = [*next(iter(by_method.values()), ())]
        rows = [[m, *map(_effect, of.values())] for m, of in by_method.items() if any(of.values())]
        if rows:
            parts.append(table([f"{group} graphs", *(f"L = {d}" for d in depths)], rows))
    parts.append(_over_graphs_in_words(pooled))
    return "\n\n".join([part for part in parts if part] + [_what_is_missing(whole, found)])


def options_table(whole: Study, records: Sequence[Record]) -> str:
    """Returns what each option of all methods adds, by group and depth; empty if none is known."""
    blocks = next(iter(whole.values())).about.blocks
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for place, runs in by_candidate(records).items():
        if place in whole and choose(whole[place], runs) is not None:
            for option, added in effects(whole[place], runs).items():
                of = found.setdefault((option, blocks[place.graph].group), {})
                of.setdefault(place.layers, []).append(added)
    depths = sorted({place.layers for place in whole})
    rows = [[*names, *(_counted(of.get(d, [])) for d in depths)] for names, of in found.items()]
    head = ["option", "graphs", *(f"L = {depth}" for depth in depths)]
    return table(head, sorted(rows)) if rows else ""


def effects(cell: Cell, runs: Mapping[str, Sequence[Record]]) -> dict[str, float]:
    """Returns what the second value of each option of all methods adds, in validation accuracy.

    Options have two values in the candidates of the table.
    """
    of_word: dict[str, list[float]] = {w: [] for names in cell.about.candidates for w in names}
    for words in cell.candidates:
        tried = [r for r in runs[" ".join(words)] if r.seed in cell.about.tuning_seeds]
        for word in of_word.keys() & {*words}:
            of_word[word].append(statistics.fmean(record.val_accuracy for record in tried))
    options: dict[str, list[str]] = {}
    for word in of_word:
        options.setdefault(word.partition("=")[0], []).append(word)
    return {
        f"`{other}`, not {base.partition('=')[2]}":
            statistics.fmean(of_word[other]) - statistics.fmean(of_word[base])
        for base, other in options.values()
    }  # fmt: skip


def _counted(differences: Sequence[float]) -> str:
    if not differences:
        return "missing"
    text = f"{points(statistics.fmean(differences))} "
    text += f"({sum(d > ROUNDING for d in differences)} of {len(differences)})"
    return text.replace(" ", NO_BREAK)


def _over_all(
    methods: Iterable[str],
    compared: Compared,
    pooled: Mapping[tuple[str, int], Pooled],
    network: str,
) -> str:
    """Returns the table over graphs; empty if no depth has enough of them."""
    depths = sorted({depth for (_, depth), of in pooled.items() if of.graphs >= LEAST})
    own: dict[tuple[str, int], list[Comparison]] = {}
    for place, of in compared.items():
        if place.network == network:
            own.setdefault((place.method, place.layers), []).append(of)
    rows = [
        [m, *(_effect(own.get((m, depth), ())) for depth in depths)]
        for m in methods
        if any((m, depth) in own for depth in depths)
    ]
    return table(["all graphs", *(f"L = {depth}" for depth in depths)], rows) if depths else ""


def _over_graphs_in_words(pooled: Mapping[tuple[str, int], Pooled]) -> str:
    """Says which methods differ from none over the graphs; empty if no depth has enough of them."""
    tested = {key: of for key, of in pooled.items() if not math.isnan(of.adjusted)}
    if not tested:
        return ""
    clear = ", ".join(f"{m} at L = {d}" for (m, d), of in tested.items() if of.adjusted < RATE)
    least = min(of.adjusted for of in tested.values())
    return (
        f"Significant over all graphs (t-tests of the differences of the graphs, corrected for "
        f"methods and depths): {clear or 'none'}; the smallest p is {least:.2g}."
    )


def _what_is_missing(whole: Study, found: Found) -> str:
    done, every = len(found), len(whole)
    others = f"; `oversmoothing figure cures --plan` lists the {every - done} others"
    plan = others if done < every else ""
    methods = dict.fromkeys(place.method for place in whole)
    none = [method for method in methods if not any(place.method == method for place in found)]
    text = f"{done} of {every} cells are measured{plan}."
    return f"{text} Not measured on any graph: {', '.join(none)}." if none else text


def _effect(compared: Sequence[Comparison]) -> str:
    """Returns the mean difference over graphs, and the counts of significant differences."""
    if not compared:
        return "missing"
    better = sum(c.significant and c.difference > 0 for c in compared)
    worse = sum(c.significant and c.difference < 0 for c in compared)
    text = points(statistics.fmean(c.difference for c in compared))
    counted = f"({better} ↑ {worse} ↓ of {len(compared)})".replace(" ", NO_BREAK)
    return f"{text} {counted}"


def points(mean: float) -> str:
    """Returns a difference with its sign and one digit."""
    return f"{mean:+.1f}".replace("-", "−") if abs(mean) >= 0.05 else "0.0"


def _every_graph(whole: Study, found: Found, compared: Compared) -> str:
    """Returns a table of methods × depths for each network and graph."""
    n = len(seeds_of(next(iter(whole.values()))))
    head = (
        "## Every graph\n\nTest accuracy, or ROC AUC where a graph is scored by it, in %: "
        f"mean ± std (ddof = 1), n = {n}. ↑ ↓: better or worse than {BASELINE}, paired t-test at a "
        "false discovery rate of 5 % over all comparisons of this page."
    )
    measured = {(place.network, place.graph, place.method) for place in found}
    own = [place for place in whole if (place.network, place.graph, place.method) in measured]
    return "\n\n".join([head, *_tables(own, found, compared)]) + "\n"


def _tables(places: Collection[Place], found: Found, compared: Compared) -> list[str]:
    """Returns a table of methods × depths for each network and graph."""
    networks = [*dict.fromkeys(place.network for place in places)]
    of_graphs: dict[tuple[str, str], list[Place]] = {}
    for place in sorted(places, key=lambda place: networks.index(place.network)):
        of_graphs.setdefault((place.network, place.graph), []).append(place)
    parts = []
    for names, own in of_graphs.items():
        rows: dict[str, list[str]] = {}
        for place in own:
            rows.setdefault(place.method, []).append(_shown(place, found, compared))
        head = [", ".join(names), *dict.fromkeys(f"L = {place.layers}" for place in own)]
        parts.append(table(head, [[method, *texts] for method, texts in rows.items()]))
    return parts


def _shown(place: Place, found: Found, compared: Compared) -> str:
    if place not in found:
        return "missing"
    _, own = found[place]
    text = f"{own.mean:.1f} ± {own.std:.1f}"
    comparison = compared.get(place)
    if comparison is None or not comparison.significant:
        return text
    return f"{text} {'↑' if comparison.difference > 0 else '↓'}"


def rows(whole: Study, found: Found, compared: Compared) -> list[list[object]]:
    """Returns the lines of the table of all cells, with the columns ``HEAD``."""
    lines = []
    for place in whole:
        if place in found:
            (candidate, own), beside = found[place], compared.get(place)
            numbers = [f"{x:.3g}" for x in beside] if beside else [""] * 3
            means = [f"{own.mean:.6g}", f"{own.std:.6g}"]
            each = [" ".join(map(str, of)) for of in (own.values, own.seeds)]
            lines.append([*place, own.n, *means, *numbers, candidate, *each])
    return lines
