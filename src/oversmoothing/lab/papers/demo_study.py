"""A tour in minutes: a depth study on a graph, a small Figure 1, segmentation, and one page.

It uses the graph Cora if DATA_ROOT (default: data) has it, else a generated graph.
"""

import math
import os
import textwrap
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import yaml
from matplotlib.figure import Figure
from omegaconf import DictConfig

from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.methods import styles_of
from oversmoothing.lab.drawing.panels import LINES, depth_axis, handles, panels
from oversmoothing.lab.launch.command import configs, run_all
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.launch.script import Parser
from oversmoothing.lab.papers.centered_fig1 import Panel, failures, heat_maps, panels_of
from oversmoothing.lab.processes import in_processes
from oversmoothing.lab.report.page import Section, write_page

OUTPUTS = Path("outputs/demo")
RANK = ["experiment=rank_fig1", "task.gammas=-1.5:1.5:0.25", "backbone.depth=100"]
WORDS = yaml.safe_load(
    resources.files("oversmoothing.lab.papers").joinpath("demo.yaml").read_text("utf-8")
)
METHODS: dict[str, list[str]] = WORDS["methods"]  # words of train.py, and what each layer does
TRAINING = ["seeds=[0]", "trainer.epochs=60", "trainer.lr=0.01", "backbone.dropout=0.3"]
SCENES = ["experiment=wsss_scenes"]
DEPTHS = [32, 8, 2]
# CPU time of the segmentation, of the GCNs of each depth on Cora, and of the ranks, measured on one
# thread. On the generated graph the GCNs take half of it.
SECONDS = [150, 176, 50, 16, 25]
LARGEST = {"color": "#666666", "linestyle": ":", "linewidth": 1}  # class, always answered
COMMON = [f"paths.outputs={OUTPUTS}", "threads=1", "logger=none"]

Study = dict[str, dict[int, dict[str, Any]]]  # method -> depth -> result of the seed


class Part(NamedTuple):
    """Runs of one process."""

    name: str
    configs: list[DictConfig]


def main(argv: list[str]) -> int:
    """Writes ``outputs/demo/index.html``; returns 1 if some run failed."""
    Parser(__doc__, "oversmoothing figure demo").parse_args(argv)
    cora = Path(os.environ.get("DATA_ROOT") or "data") / "graphs/Planetoid/Cora/raw/ind.cora.graph"
    data = "cora" if cora.is_file() else "sbm"
    networks = {(m, d): _network(data, METHODS[m][0].split(), d) for d in DEPTHS for m in METHODS}
    ranks, [scenes] = configs([*RANK, *COMMON]), configs([*SCENES, *COMMON])
    parts = [Part("segmentation from image-level labels, on generated scenes", [scenes])]
    for depth in DEPTHS:
        own = [networks[method, depth] for method in METHODS]
        parts.append(Part(f"GCNs of {depth} layers on {data}", own))
    parts.append(Part("rank of random transformers", ranks))
    if _run(parts, jobs=min(2, os.cpu_count() or 1)):
        return 1
    study = {m: {d: _result(networks[m, d]) for d in reversed(DEPTHS)} for m in METHODS}
    chance = _chance(networks["none", max(DEPTHS)], "test_accuracy")
    first = save(_draw(study, WORDS["graphs"][data]["name"], chance), OUTPUTS / "depth")
    shown = [_graph(data, study), _rank(panels_of(ranks)), _segmentation(scenes)]
    _show(_answer(data, study, chance), first, [*shown, _section("next", WORDS["next"])])
    return 0


def _run(parts: Sequence[Part], jobs: int) -> int:
    """Runs each part in a process; says how long all take, and when one ends."""
    cores = "2 idle cores" if jobs > 1 else "an idle core"
    print(f"{len(parts)} parts: about {minutes(jobs)} minutes on {cores}", flush=True)
    began, failed = time.monotonic(), 0
    for number, (part, count) in enumerate(in_processes(_failed, parts, jobs, lambda _: 1), 1):
        failed += count
        passed = time.monotonic() - began
        print(f"part {number} of {len(parts)} after {passed:.0f} s: {part.name}", flush=True)
    return failed


def minutes(jobs: int) -> int:
    """Returns about how long all parts take, ``jobs`` side by side; README.md says the same."""
    return math.ceil(max(sum(SECONDS) / jobs, *SECONDS) / 60)


def _failed(part: Part) -> int:
    return len(run_all(part.configs))


def _network(data: str, words: list[str], layers: int) -> DictConfig:
    size = [f"data={data}", f"backbone.depth={layers}", "task.layer_metrics=true"]
    return configs([*size, *words, *TRAINING, *COMMON])[0]


def _result(config: DictConfig) -> dict[str, Any]:
    [found] = execute(config)["seeds"].values()
    return found


def _chance(config: DictConfig, metric: str) -> float:
    """Returns the value of a metric if all answers are the most frequent class."""
    [level] = execute(config)["chance"].values()
    return float(level[metric])


def _answer(data: str, study: Study, chance: float) -> str:
    """Says what oversmoothing is, whether it was seen, and what helped."""
    few, deep = min(DEPTHS), max(DEPTHS)
    accuracy = {method: of[deep]["test_accuracy"] for method, of in study.items()}
    best, *rest = sorted(accuracy.keys() - {"none"}, key=accuracy.__getitem__, reverse=True)
    return WORDS["answer"].format(
        name=WORDS["graphs"][data]["name"],
        few=few,
        deep=deep,
        shallow=study["none"][few]["test_accuracy"],
        plain=accuracy["none"],
        chance=chance,
        rank=_ranks(study["none"][deep])[-1],
        best=best,
        best_accuracy=accuracy[best],
        best_rank=_ranks(study[best][deep])[-1],
        others=", ".join(f"{accuracy[method]:.1f} % ({method})" for method in rest),
    )


def _ranks(result: dict[str, Any]) -> list[float]:
    """Returns the effective rank of the nodes after each hidden layer."""
    ranks: list[float] = result["layers"]["effective_rank"]
    return ranks[:-1]  # the last are the classes


def _section(name: str, rows: list[list[str]], *words: str, **parts: Any) -> Section:
    """Returns a section of demo.yaml with the command that runs ``words``."""
    about = WORDS["sections"][name]
    figures, text = parts.pop("figures", ()), about.get("text", "").format(**parts)
    command = " ".join(["python train.py", *words]) if words else ""
    return Section(about["title"], text, command, rows=rows, figures=figures)


def _segmentation(config: DictConfig) -> Section:
    """Returns the mIoU of each stage, and that of masks with only background."""
    numbers, folder = _result(config), run_folder(config)
    rows = [["stage", "what it is", "mIoU, %"]]
    for stage, key, what in WORDS["stages"]:
        what = what.format(coverage=numbers["val_pseudo_coverage"])
        rows.append([stage, what, f"{numbers[f'val_{key}_miou']:.1f}"])
    chance = f"{_chance(config, 'val_seg_miou'):.1f}"
    rows.append(["baseline", "every pixel is background", chance])
    pictures = folder / f"pictures-seed{config.seeds[0]}.png"
    return _section("segmentation", rows, *SCENES, figures=[pictures])


def _rank(panels: Sequence[Panel]) -> Section:
    head = [
        "LayerNorm",
        "weights",
        "effective rank at γ = 0",
        "at γ = −1",
        "γ at which the claim fails",
    ]
    rows, higher = [head], 0
    for panel in panels:
        last = dict(zip(panel.gamma.round(6), panel.effective_rank[:, -1].round(1)))
        higher += last[-1] > last[0]
        differ = f"{len(failures(panel))} of {len(panel.gamma)}"
        rows.append([panel.block, panel.weights, str(last[0]), str(last[-1]), differ])
    places = {"depth": panels[0].depth[-1], "higher": higher, "panels": len(panels)}
    title = f"effective rank after {panels[0].depth[-1]} layers: higher with γ = −1 than\n"
    title += f"with γ = 0 in {higher} of {len(panels)} networks"
    map_ = heat_maps(panels, ["effective_rank"], title)
    figures = save(map_, OUTPUTS / "effective_rank")
    return _section("rank", rows, *RANK, figures=figures, **places)


def _graph(data: str, study: Study) -> Section:
    depths, rows = sorted(DEPTHS), []
    for method, of in study.items():
        words, does = METHODS[method]
        accuracies = [f"{of[depth]['test_accuracy']:.1f}" for depth in depths]
        rows.append([method, does, *accuracies, f"`{words}`"])
    head = ["method", "what each layer does", *(f"{depth} layers" for depth in depths), "settings"]
    graph, by_depth = WORDS["graphs"][data], f"backbone.depth={','.join(map(str, depths))}"
    words = ["-m", f"data={data}", by_depth, *TRAINING]
    places = {"task": graph["task"], "deep": max(DEPTHS)}
    return _section("graph", [head, *rows], *words, **places)


def _show(text: str, first: Sequence[Path], sections: Sequence[Section]) -> None:
    """Prints the answer and writes the page, which begins with the figures ``first``."""
    page = OUTPUTS / "index.html"
    write_page(page, WORDS["title"], sections, text=text, figures=first)
    for paragraph in text.split("\n\n"):
        print("", textwrap.fill(paragraph.replace("`", ""), 90), sep="\n")
    print("\nfigures:", *first, *(path for section in sections for path in section.figures))
    print("page:   ", page.resolve().as_uri())


@matplotlib.rc_context(LINES)
def _draw(study: Study, name: str, chance: float) -> Figure:
    """Draws accuracy by depth, and the effective rank by layer of the deepest network."""
    deepest = max(DEPTHS)
    titles = f"{name}: accuracy by depth", f"effective rank in {deepest} layers"
    figure, axes = panels(titles, across=2, each=(2.6, 2.3), margin=(0.0, 1.1))
    accuracy, ranks = axes.values()
    styles, last = styles_of(study), {}
    for method, by_depth in [*study.items()][::-1]:  # the plain network on top, thin
        style = styles[method] | {"linewidth": 0.8 if method == "none" else 2.2}
        values = [result["test_accuracy"] for result in by_depth.values()]
        accuracy.plot([*by_depth], values, markersize=3 if method == "none" else 5, **style)
        layers = _ranks(by_depth[deepest])
        ranks.plot(range(1, len(layers) + 1), layers, markersize=2, **style)
        last[method] = by_depth[deepest]["test_accuracy"]
    accuracy.axhline(chance, **LARGEST)
    accuracy.set(xlabel="layers of the network", ylabel="test accuracy, %")
    ranks.set(xlabel="layer", ylabel="effective rank of nodes")
    depth_axis(accuracy, DEPTHS)
    for title, axis in axes.items():
        axis.set_title(title, fontsize=9)
        axis.set_ylim(bottom=0)
    best = max(last, key=last.__getitem__)
    plain = f"With {deepest} layers: {last['none']:.0f} % without a method"
    figure.suptitle(f"{plain}, {last[best]:.0f} % with {best}", fontsize=9)
    named = handles(styles | {"largest class": LARGEST})
    figure.legend(handles=named, loc="outside lower center", ncols=2, frameon=False)
    return figure
