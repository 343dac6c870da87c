"""The tour of five minutes: a small Figure 1, a depth study on a graph, segmentation, one page.

Uses Cora where DATA_ROOT (default: data) has it, else the embedded graph.
"""

import os
import sys
import webbrowser
from pathlib import Path

import torch
from omegaconf import DictConfig

from oversmoothing.config.instantiate import build
from oversmoothing.launch import command as check
from oversmoothing.launch.attempts import run_all
from oversmoothing.launch.execute import execute, run_folder
from oversmoothing.launch.script import run_script
from oversmoothing.metrics.segmentation import Confusion
from oversmoothing.papers import demo_study as study
from oversmoothing.papers.panels import panels_of
from oversmoothing.papers.rank_claim import failures
from oversmoothing.papers.rank_figures import draw_figures
from oversmoothing.papers.rank_panels import load_panels
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
DEPTHS = (32, 8, 2)  # the longest first, so that two processes end together
COMMON = [f"paths.outputs={OUTPUTS}", "threads=1", "logger=none"]


def main() -> int:
    data = "cora" if _has_cora() else "sbm"
    print(f"1/3 rank of random transformers: {' '.join(RANK)}", flush=True)
    panels = check.configs([*RANK, *COMMON])
    print(f"2/3 GCNs of 2, 8 and 32 layers on {data}", flush=True)
    networks = {
        (method, depth): _network(data, words, depth)
        for depth in DEPTHS
        for method, words in METHODS.items()
    }
    print("3/3 segmentation from image-level labels, on generated scenes", flush=True)
    [scenes] = check.configs([*SCENES, *COMMON])
    if run_all([scenes, *networks.values(), *panels], jobs=min(2, os.cpu_count() or 1)):
        return 1
    results = {method: {} for method in METHODS}
    for depth in reversed(DEPTHS):
        for method in METHODS:
            results[method][depth] = execute(networks[method, depth])
    _show(data, results, panels_of(panels), _segmentation(scenes))
    return 0


def _network(data: str, words: list[str], depth: int) -> DictConfig:
    size = [f"data={data}", f"backbone.depth={depth}", "task.layer_metrics=true"]
    return check.configs([*size, *words, *TRAINING, *COMMON])[0]


def _has_cora() -> bool:
    return (Path(os.environ.get("DATA_ROOT") or "data") / "graphs/Planetoid/Cora/raw").is_dir()


def _segmentation(config: DictConfig) -> Section:
    """What was found in the scenes, beside what a mask without anything in it would get."""
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
        "The network was told which things are in a scene, never where. CAM and refined label are "
        "told the former for these scenes, too; the mask is not. A tiny network from scratch, one "
        "seed, easy scenes: a look, no measurement.",
        f"python train.py {' '.join(SCENES)}",
        rows=[["", "mIoU"], *found, ["all background", f"{empty.miou():.1f}"]],
        figures=[run_folder(config) / f"pictures-seed{seed}.png"],
    )


def _show(data: str, results: study.Study, cells: list, segmentation: Section) -> None:
    """The tables on the terminal, figures, and the page, opened where there is a screen."""
    sections = [_rank(cells), _graph(data, results), segmentation]
    page = OUTPUTS / "index.html"
    write_page(page, "Oversmoothing: a demonstration", sections)
    for section in sections:
        print("", section.title, study.text(section.rows), sep="\n")
    print("\nfigures:", *(path for section in sections for path in section.figures))
    print("page:   ", page.resolve().as_uri())
    if sys.stdout.isatty() and os.environ.get("DISPLAY"):
        webbrowser.open(page.resolve().as_uri())


def _rank(cells: list) -> Section:
    claim = [
        [f"{p.block}, {p.weights}", f"{len(failures(p))} of {len(p.gamma)}"]
        for p in load_panels(cells)
    ]
    return Section(
        "Rank of random transformers",
        "The paper's claim: with depth the rank falls to 1 for every γ > −1 and for no γ ≤ −1. "
        "Which γ go against it at 100 layers:",
        f"python train.py {' '.join(RANK)}",
        rows=[["", "γ against the claim"], *claim],
        figures=[path for path in draw_figures(cells, OUTPUTS) if path.suffix == ".png"],
    )


def _graph(data: str, results: study.Study) -> Section:
    return Section(
        f"GCNs on {data}: test accuracy, %",
        "One seed and 60 epochs, to be short: a look, no measurement. `make table5` measures.",
        f"python train.py -m data={data} aggregator=centered aggregator@then=layernorm "
        f"backbone.depth=2,8,32 {' '.join(TRAINING)}",
        rows=study.rows(results),
        figures=[study.draw(results, data, OUTPUTS / "depth.png")],
    )


if __name__ == "__main__":
    run_script(main)
