"""A tour of five minutes: a small Figure 1, a depth study on a graph, segmentation, and one page.

It uses the graph Cora if DATA_ROOT (default: data) has it, else a generated graph.
"""

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import torch
from omegaconf import DictConfig

from oversmoothing.config.instantiate import build
from oversmoothing.drawing.files import save
from oversmoothing.launch.attempts import run_all
from oversmoothing.launch.command import configs
from oversmoothing.launch.execute import execute, run_folder
from oversmoothing.metrics.segmentation import Confusion
from oversmoothing.papers import figure_parser
from oversmoothing.papers.centered_fig1.claim import failures
from oversmoothing.papers.centered_fig1.heat_maps import draw_figures
from oversmoothing.papers.centered_fig1.panels import Panel, panels_of
from oversmoothing.papers.demo_study import depth
from oversmoothing.report.page import Section, write_page

OUTPUTS = Path("outputs/demo")
RANK = ["experiment=rank_fig1", "task.gammas=-1.5:1.5:0.25", "backbone.depth=100"]
METHODS = {
    "none": ["aggregator=none"],
    "LayerNorm": ["aggregator=layernorm"],
    "ContraNorm + LayerNorm": ["aggregator=contranorm", "aggregator@then=layernorm"],
    "centered + LayerNorm": ["aggregator=centered", "aggregator@then=layernorm"],
}
TRAINING = ["seeds=[0]", "trainer.epochs=60", "trainer.lr=0.01", "backbone.dropout=0.3"]
SCENES = ["experiment=wsss_scenes"]
STAGES = {"CAM": "cam", "refined label": "pseudo", "mask": "seg_ms"}
DEPTHS = (32, 8, 2)  # longest first, so that two processes finish together
COMMON = [f"paths.outputs={OUTPUTS}", "threads=1", "logger=none"]


def main(argv: list[str]) -> int:
    """Writes ``outputs/demo/index.html``; returns 1 if some run failed."""
    figure_parser(__name__, __doc__, pdf=False).parse_args(argv)
    data = "cora" if _has_cora() else "sbm"
    print(f"1/3 rank of random transformers: {' '.join(RANK)}", flush=True)
    ranks = configs([*RANK, *COMMON])
    print(f"2/3 GCNs of 2, 8 and 32 layers on {data}", flush=True)
    networks = {(m, d): _network(data, METHODS[m], d) for d in DEPTHS for m in METHODS}
    print("3/3 segmentation from image-level labels, on generated scenes", flush=True)
    [scenes] = configs([*SCENES, *COMMON])
    if run_all([scenes, *networks.values(), *ranks], jobs=min(2, os.cpu_count() or 1)):
        return 1
    study = {m: {d: execute(networks[m, d]) for d in reversed(DEPTHS)} for m in METHODS}
    _show([_rank(panels_of(ranks)), _graph(data, study), _segmentation(scenes)])
    return 0


def _network(data: str, words: list[str], layers: int) -> DictConfig:
    size = [f"data={data}", f"backbone.depth={layers}", "task.layer_metrics=true"]
    return configs([*size, *words, *TRAINING, *COMMON])[0]


def _has_cora() -> bool:
    return (Path(os.environ.get("DATA_ROOT") or "data") / "graphs/Planetoid/Cora/raw").is_dir()


def _segmentation(config: DictConfig) -> Section:
    """Returns the mIoU of each stage, beside that of masks which are all background."""
    seed, data = config.seeds[0], build(config.data)
    numbers, empty = execute(config)["seeds"][str(seed)], Confusion(1 + len(data.classes))
    for id in data.val:
        truth = data.mask(id)
        empty.update(torch.zeros_like(truth), truth, id)
    found = [[stage, f"{numbers[f'val_{key}_miou']:.1f}"] for stage, key in STAGES.items()]
    decided = f"where it decides, {numbers['val_pseudo_coverage']:.0f} % of the pixels"
    found[1][0] += f" ({decided})"
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
    """Prints the tables and writes the page, which it opens if there is a screen."""
    page = OUTPUTS / "index.html"
    write_page(page, "Oversmoothing: a demonstration", sections)
    for section in sections:
        print("", section.title, depth.text(section.rows), sep="\n")
    print("\nfigures:", *(path for section in sections for path in section.figures))
    print("page:   ", page.resolve().as_uri())
    if sys.stdout.isatty() and os.environ.get("DISPLAY"):
        webbrowser.open(page.resolve().as_uri())


def _rank(panels: Sequence[Panel]) -> Section:
    failing = [[f"{p.block}, {p.weights}", f"{len(failures(p))} of {len(p.gamma)}"] for p in panels]
    return Section(
        "Rank of random transformers",
        "The paper's claim: with depth the rank falls to 1 for every γ > −1 and for no γ ≤ −1. "
        "Number of γ that contradict it with 100 layers:",
        f"python train.py {' '.join(RANK)}",
        rows=[["", "γ that contradict the claim"], *failing],
        figures=[path for path in draw_figures(panels, OUTPUTS) if path.suffix == ".png"],
    )


def _graph(data: str, study: depth.Study) -> Section:
    return Section(
        f"GCNs on {data}: test accuracy, %",
        "One seed and 60 epochs, to be quick: an illustration, not a measurement. `make table5` "
        "measures.",
        f"python train.py -m data={data} aggregator=centered aggregator@then=layernorm "
        f"backbone.depth=2,8,32 {' '.join(TRAINING)}",
        rows=depth.rows(study),
        figures=save(depth.draw(study, data), OUTPUTS / "depth"),
    )
