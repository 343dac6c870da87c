"""A tour in minutes: a depth study on a graph, a small Figure 1, segmentation, and one page.

It uses the graph Cora if DATA_ROOT (default: data) has it, else a generated graph.
"""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import torch
from matplotlib.figure import Figure
from omegaconf import DictConfig

from oversmoothing.lab.arguments import build
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.methods import styles_of
from oversmoothing.lab.drawing.panels import LINES, depth_axis, extremes, panels
from oversmoothing.lab.launch.command import configs, run_all
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.launch.script import Parser
from oversmoothing.lab.papers.centered_fig1 import Panel, draw_figures, failures, panels_of
from oversmoothing.lab.processes import in_processes
from oversmoothing.lab.report.markdown import table
from oversmoothing.lab.report.page import Section, write_page
from oversmoothing.lab.tasks.overlap import Confusion

OUTPUTS = Path("outputs/demo")
RANK = ["experiment=rank_fig1", "task.gammas=-1.5:1.5:0.25", "backbone.depth=100"]
METHODS = {
    "none": ["aggregator=none"],
    "LayerNorm": ["aggregator=layernorm"],
    "ContraNorm + LayerNorm": ["aggregator=contranorm", "aggregator@then=layernorm"],
    "centered + LayerNorm": ["aggregator=centered", "aggregator@then=layernorm"],
    "GCNII": ["backbone=gcnii"],
    "LayerNorm + residual": ["aggregator=layernorm", "backbone.residual=1"],
}
TRAINING = ["seeds=[0]", "trainer.epochs=60", "trainer.lr=0.01", "backbone.dropout=0.3"]
SCENES = ["experiment=wsss_scenes"]
STAGES = {"CAM": "cam", "refined label": "pseudo", "mask, from several scales": "seg_ms"}
DEPTHS = [32, 8, 2]
# CPU time of the segmentation, of the GCNs of each depth on Cora, and of the ranks, measured on one
# thread. On the generated graph the GCNs take half of it.
SECONDS = [150, 176, 50, 16, 25]
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
    networks = {(m, d): _network(data, METHODS[m], d) for d in DEPTHS for m in METHODS}
    ranks, [scenes] = configs([*RANK, *COMMON]), configs([*SCENES, *COMMON])
    parts = [Part("segmentation from image-level labels, on generated scenes", [scenes])]
    for depth in DEPTHS:
        own = [networks[method, depth] for method in METHODS]
        parts.append(Part(f"GCNs of {depth} layers on {data}", own))
    parts.append(Part("rank of random transformers", ranks))
    if _run(parts, jobs=min(2, os.cpu_count() or 1)):
        return 1
    study = {m: {d: _result(networks[m, d]) for d in reversed(DEPTHS)} for m in METHODS}
    _show([_graph(data, study), _rank(panels_of(ranks)), _segmentation(scenes)])
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


def _segmentation(config: DictConfig) -> Section:
    """Returns the mIoU of each stage, and that of masks with only background."""
    seed, data = config.seeds[0], build(config.data)
    numbers, empty = _result(config), Confusion(1 + len(data.classes))
    for id in data.val:
        truth = data.mask(id)
        empty.update(torch.zeros_like(truth), truth, id)
    found = [[stage, f"{numbers[f'val_{key}_miou']:.1f}"] for stage, key in STAGES.items()]
    found[1][0] += f" (where it decides, {numbers['val_pseudo_coverage']:.0f} % of the pixels)"
    return Section(
        "Segmentation from image-level labels, on generated scenes: mIoU, %",
        "The network learns from lists of the shapes in a scene and never sees where they are. For "
        "CAM and refined label these lists are also given here; for the mask they are not. A tiny "
        "network from scratch, one seed, easy scenes: an illustration, not a measurement.",
        f"python train.py {' '.join(SCENES)}",
        rows=[["", "mIoU"], *found, ["all background", f"{empty.miou():.1f}"]],
        figures=[run_folder(config) / f"pictures-seed{seed}.png"],
    )


def _show(sections: Sequence[Section]) -> None:
    """Prints the tables and writes the page."""
    page = OUTPUTS / "index.html"
    write_page(page, "Oversmoothing: a demonstration", sections)
    for section in sections:
        print("", section.title, table(section.rows[0], section.rows[1:]), sep="\n")
    print("\nfigures:", *(path for section in sections for path in section.figures))
    print("page:   ", page.resolve().as_uri())


def _rank(panels: Sequence[Panel]) -> Section:
    failing = [[f"{p.block}, {p.weights}", f"{len(failures(p))} of {len(p.gamma)}"] for p in panels]
    return Section(
        "Rank of random transformers: claimed to fall to 1 for every γ > −1, and for no γ ≤ −1",
        "Centered self-attention adds γ to the sum of every row of the attention map; γ = 0 is "
        "plain attention. Below, the number of γ that differ from the claim of its paper after 100 "
        "layers; for some "
        "γ > −1 the rank is still falling then. The second picture has the effective rank, which "
        "weighs the directions that the rank counts.",
        f"python train.py {' '.join(RANK)}",
        rows=[["", "γ that differ"], *failing],
        figures=[path for path in draw_figures(panels, OUTPUTS) if path.suffix == ".png"],
    )


def _graph(data: str, study: Study) -> Section:
    head = ["", *(f"L={depth}" for depth in reversed(DEPTHS))]
    lines = [[m, *(f"{r['test_accuracy']:.1f}" for r in of.values())] for m, of in study.items()]
    return Section(
        f"GCNs on {data}: test accuracy, %",
        "Every layer averages each node with its neighbours. After many layers all nodes can "
        "become alike, so that no classifier tells them apart: oversmoothing. Below, which methods "
        "keep a deep network accurate. One seed and 60 epochs, to be quick: an illustration, not a "
        "measurement; `make cures` measures.",
        f"python train.py -m data={data} aggregator=centered aggregator@then=layernorm "
        f"backbone.depth=2,8,32 {' '.join(TRAINING)}",
        rows=[head, *lines],
        figures=save(_draw(study, data), OUTPUTS / "depth"),
    )


@matplotlib.rc_context(LINES)
def _draw(study: Study, data: str) -> Figure:
    """Draws accuracy by depth, and the effective rank by layer of the deepest network."""
    deepest = max(DEPTHS)
    titles = f"{data}: accuracy by depth", f"rank in {deepest} layers"
    figure, axes = panels(titles, across=2, each=(2.6, 2.3), margin=(0.0, 0.9))
    accuracy, ranks = axes.values()
    styles, last = styles_of(study), {}
    for method, by_depth in [*study.items()][::-1]:  # the plain network on top
        values = [result["test_accuracy"] for result in by_depth.values()]
        accuracy.plot([*by_depth], values, markersize=4, label=method, **styles[method])
        layers = by_depth[deepest]["layers"]["effective_rank"][:-1]  # the last are the classes
        ranks.plot(range(1, len(layers) + 1), layers, markersize=2, **styles[method])
        last[method] = by_depth[deepest]["test_accuracy"]
    accuracy.set(xlabel="layers of the network", ylabel="test accuracy, %")
    ranks.set(xlabel="layer", ylabel="effective rank of nodes")
    depth_axis(accuracy, DEPTHS)
    for title, axis in axes.items():
        axis.set_title(title, fontsize=9)
        axis.set_ylim(bottom=0)
    figure.suptitle(extremes(f"{deepest} layers: accuracy", last, 0), fontsize=9)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure
