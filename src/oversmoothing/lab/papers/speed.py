"""What each method adds to the time of a training step, from results/bench.

oversmoothing figure speed

On a CPU the methods were measured in turns with no method (cases ``cures`` and ``applied`` of
benchmarks/bench.py). On a GPU those rows are taken as well; until they are measured, the epochs of
case ``graphs`` stand for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.methods import method_of, shown, styles_of
from oversmoothing.lab.drawing.panels import LINES
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.report import markdown
from oversmoothing.lab.store.files import read_csv, write_text

NETWORKS = {  # title -> theme, case, beginning of the work in its rows
    "GCN of 8 layers on Cora": ("graphs", "cures", "GCN, Cora, L = 8: "),
    "DeiT-Ti, 4 images": ("images", "applied", "deit_tiny_patch16_224, 4 × 224²: "),
}
EPOCHS = {  # case graphs, whose networks have a LayerNorm -> methods of the case cures
    "GCN, layernorm, L = 8": "LayerNorm",
    "GCN, centered, L = 8": "centered+LayerNorm",
    "GCN, contranorm, L = 8": "ContraNorm+LayerNorm",
}
NO_METHOD = "GCN, none, L = 8"
LEFT_OUT = ("none", "centered+residual", "centered+GCNII", "LayerNorm+residual")
OTHER = "#999999"  # colour of methods that are in no other figure
LONGEST = 230  # per cent; a longer bar is broken, and an arrow ends a longer range


@dataclass(frozen=True)
class Cost:
    """Extra time of a method in per cent: on a CPU with its range over rounds, and on a GPU."""

    method: str
    cpu: float
    low: float
    high: float
    gpu: float | None


def main(argv: list[str]) -> int:
    """Writes ``figures/speed.png`` and ``tables/speed.md``."""
    options = figure_parser(__doc__).parse_args(argv)
    found = {title: costs(*where) for title, where in NETWORKS.items()}
    print(*save(draw(found), options.target / "figures/speed", options.pdf), sep="\n")
    text = "# What a method adds to the time of a training step\n\n" + table(found)
    path = options.target / "tables/speed.md"
    write_text(path, text + "\n")
    print(text, path, sep="\n")
    return 0


def costs(theme: str, case: str, start: str) -> list[Cost]:
    """Returns what the methods of a case cost, the cheapest first."""
    every = read_csv(RESULTS / f"bench/{theme}.csv")
    lines = [line for line in every if not line["measure"].startswith("peak")]
    own = [line for line in lines if line["case"] == case and line["work"].startswith(start)]
    on_gpu = {_method(line): _extra(line["ratio"]) for line in own if line["place"] == "cuda"}
    found = []
    for line in own:
        if line["place"] == "cpu" and _method(line) not in LEFT_OUT:
            parts = (_extra(line[f"ratio{end}"]) for end in ("", "_low", "_high"))
            gpu = (on_gpu or _by_epochs(lines)).get(_method(line))
            found.append(Cost(_method(line), *parts, gpu))
    return sorted(found, key=lambda cost: cost.cpu)


def _method(line: dict[str, str]) -> str:
    return line["work"].rpartition(": ")[2]


def _extra(ratio: str) -> float:
    return 100 * (float(ratio) - 1)


def _by_epochs(lines: Sequence[dict[str, str]]) -> dict[str, float]:
    """Returns the extra time by the medians of the case ``graphs`` on a GPU."""
    seconds = {line["work"]: float(line["ours"]) for line in lines
               if (line["case"], line["place"]) == ("graphs", "cuda")}  # fmt: skip
    return {
        method: 100 * (seconds[work] / seconds[NO_METHOD] - 1)
        for work, method in EPOCHS.items()
        if work in seconds
    }


def table(found: dict[str, list[Cost]]) -> str:
    """Formats all methods as Markdown: extra time in % on a CPU (smallest to largest), and GPU."""
    rows = [
        [title, _name(cost.method),
         f"{_percent(cost.cpu)} ({_percent(cost.low)} to {_percent(cost.high)})",
         "not measured" if cost.gpu is None else _percent(cost.gpu)]
        for title, own in found.items()
        for cost in own
    ]  # fmt: skip
    return markdown.table(["network", "method", "CPU, %", "H100, %"], rows)


def _name(method: str) -> str:
    """Returns one spelling for both networks: contranorm of ``osm.apply`` is ContraNorm."""
    label = shown(method).replace("+", " + ")
    known = method_of(label) or ""
    return known if known.lower() == label.lower() else label


def _percent(value: float) -> str:
    return f"{value:+,.0f}".replace("-", "−").replace("+0", "0").replace("−0", "0")


@matplotlib.rc_context(LINES)
def draw(found: dict[str, list[Cost]]) -> Figure:
    """Draws a bar for each method; a diamond in its text marks what a GPU measured."""
    heights = [len(own) for own in found.values()]
    figure = Figure((5.0, 0.19 * sum(heights) + 1.3), dpi=175, layout="constrained")
    axes = figure.subplots(len(found), height_ratios=heights, sharex=True)
    for axis, (title, own) in zip(axes, found.items()):
        _draw(axis, title, own)
    axes[-1].set(xlabel="extra time of a training step, % (◆ on an H100)")
    return figure


def _draw(axis: Axes, title: str, costs: list[Cost]) -> None:
    names = [_name(cost.method) for cost in costs]
    colours = {
        name: styles_of([name])[name]["color"] if method_of(name) else OTHER for name in names
    }
    for place, (name, cost) in enumerate(zip(names, costs)):
        axis.barh(place, min(cost.cpu, LONGEST), color=colours[name], height=0.7)
        if cost.cpu > LONGEST:
            for left in (LONGEST - 44, LONGEST - 33):
                axis.plot((left, left + 9), (place + 0.5, place - 0.5), color="white", lw=2.5)
        if cost.low < LONGEST:
            axis.plot((cost.low, min(cost.high, LONGEST)), (place, place), color="0.3", lw=1)
        right = max(0, min(cost.high, LONGEST))
        if cost.high > LONGEST:  # an arrow: the range goes on, to the value in the text
            axis.plot(LONGEST + 1, place, ">", color="0.3", markersize=4, clip_on=False)
        axis.annotate(_text(cost), (right, place), (7, 0), textcoords="offset points", fontsize=8,
                      va="center")  # fmt: skip
    axis.set_yticks(range(len(names)), names)
    axis.set(xlim=(-60, LONGEST * 2.4))
    axis.set_xticks((0, 100, 200))
    axis.grid(axis="y", visible=False)
    axis.invert_yaxis()
    ends = f"{_percent(costs[0].cpu)} to {_percent(costs[-1].cpu)} % ({names[-1]})"
    axis.set_title(f"{title}: {ends}", fontsize=8.5, loc="left", x=-0.4)


def _text(cost: Cost) -> str:
    """Says what a bar shows: the extra time, the end of its range where it is cut, and a GPU's."""
    end = f" (to {_percent(cost.high)})" if cost.high > LONGEST else ""
    gpu = "" if cost.gpu is None else f" ◆ {_percent(cost.gpu)}"
    return _percent(cost.cpu) + end + gpu
