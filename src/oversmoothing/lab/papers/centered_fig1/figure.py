"""Runs the missing panels of Figure 1, draws all panels, and checks the paper's claim.

python scripts/figure.py fig1 --jobs 2
python scripts/figure.py fig1 --folder small -- backbone.depth=200 task.gammas=-1.5:1.5:0.5
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, NullLocator

from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.style import STYLE
from oversmoothing.lab.launch.attempts import run_all
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.flags import whole
from oversmoothing.lab.launch.overrides import other_runs
from oversmoothing.lab.launch.script import split_words
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.papers.centered_fig1.claim import claim_table, write_claim
from oversmoothing.lab.papers.centered_fig1.panels import (
    Panel,
    panels_of,
    write_effective_ranks,
    write_ranks,
)
from oversmoothing.lab.store.files import writing

EXPERIMENT = "experiment=rank_fig1"
COLOURS = "viridis"  # perceptually uniform
TICKS = (1, 2, 5, 10, 20, 50, 100)
LARGER = {"font.size": 11, "axes.titlesize": 12, "axes.labelsize": 11, "figure.dpi": 200}


def main(argv: list[str]) -> int:
    """Draws the figure; returns 1 if a run failed, whose panel is left blank."""
    parser = figure_parser(__name__, __doc__)
    parser.add_argument("--jobs", type=whole(), default=1, help="number of processes side by side")
    parser.add_argument("--folder", type=Path, help="where the figure of another grid goes")
    words, overrides = split_words(argv)
    options = parser.parse_args(words)
    chosen = configs([EXPERIMENT, *overrides])
    if options.folder is None and options.target == RESULTS and other_runs(overrides):
        raise InputError(
            "--publish: these overrides make another figure than the paper's; name a --folder"
        )
    folder = options.folder or options.target / "fig1"
    with writing(folder, "--folder"):  # before the runs
        folder.mkdir(parents=True, exist_ok=True)
    failures = run_all(chosen, options.jobs)
    panels = panels_of(chosen)
    paths = draw_figures(panels, folder, options.pdf) + write_claim(panels, folder)
    print(claim_table(panels), *paths, sep="\n")
    return 1 if failures else 0


def draw_figures(panels: Sequence[Panel], folder: Path, pdf: bool = False) -> list[Path]:
    """Draws both heat maps, writes their data, and returns the paths.

    Args:
        panels: of each network and seed; a panel that is missing is left blank.
        folder: for ``fig1_rank`` and ``fig1_effective_rank``, each as .png and .csv.gz.

    Raises:
        InputError: there are no panels, or panels have different grids of γ.
    """
    if not panels:
        raise InputError("figure 1: no finished run; run `python train.py experiment=rank_fig1`")
    files = []
    for quantity, write in (("rank", write_ranks), ("effective_rank", write_effective_ranks)):
        stem = folder / f"fig1_{quantity}"
        files += save(heat_maps(panels, quantity), stem, pdf)
        files.append(write(panels, stem.with_suffix(".csv.gz")))
    return files


@matplotlib.rc_context(STYLE | LARGER)
def heat_maps(panels: Sequence[Panel], quantity: Literal["rank", "effective_rank"]) -> Figure:
    """Draws blocks as rows and weights as columns; colours are logarithmic means over seeds."""
    rows = sorted({panel.place[0] for panel in panels})
    columns = sorted({panel.place[1] for panel in panels})
    size = (1.7 + 2.9 * len(columns), 1.3 + 2.5 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
    norm = LogNorm(1, max(2, *(panel.rank.max() for panel in panels)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            here = [panel for panel in panels if panel.place == (row, column)]
            _draw(axes[i, j], here, quantity, norm)
    _label(figure, axes, panels, columns)
    _colour_bar(figure, axes, norm, quantity)
    return figure


def _draw(axes: Axes, seeds: list[Panel], quantity: str, norm: LogNorm) -> None:
    axes.set_facecolor("0.8")
    if not seeds:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center")
        return
    values = np.mean([getattr(panel, quantity) for panel in seeds], axis=0, dtype=float)
    lost = np.any([panel.rank < 0 for panel in seeds], axis=0)
    values = np.ma.masked_where(lost, np.maximum(values, 1))  # a zero matrix is shown as rank 1
    gamma, depth = _edges(seeds[0].gamma), np.append(seeds[0].depth - 0.5, seeds[0].depth[-1] + 0.5)
    axes.pcolormesh(gamma, depth, values.T, norm=norm, cmap=COLOURS, rasterized=True)
    axes.axvline(-1, color="white", linewidth=1.2)
    axes.axvline(-1, color="black", linewidth=1.2, linestyle=(0, (3, 3)))
    axes.set_yscale("log")  # uniform weights: the rank falls within a few layers


def _edges(centers: np.ndarray) -> np.ndarray:
    """Returns the borders halfway between the values of γ."""
    if len(centers) == 1:
        return np.array([centers[0] - 0.5, centers[0] + 0.5])
    inner = (centers[1:] + centers[:-1]) / 2
    return np.array([2 * centers[0] - inner[0], *inner, 2 * centers[-1] - inner[-1]])


def _label(figure: Figure, axes: np.ndarray, panels: Sequence[Panel], columns: list) -> None:
    for axis, (_, weights) in zip(axes[0], columns):
        axis.set_title(weights)
    blocks = sorted({(panel.place[0], panel.block) for panel in panels})
    for axis, (_, block) in zip(axes[:, 0], blocks):
        axis.set_ylabel(f"{block}\ndepth", linespacing=1.5)
    deepest = max(int(panel.depth[-1]) for panel in panels)
    ticks = [tick for tick in (1, 3, 10, 30, 100, 300, 1000, 3000) if tick < 0.8 * deepest]
    axes[0, 0].set_yticks([*ticks, deepest], [str(tick) for tick in (*ticks, deepest)])
    axes[0, 0].yaxis.set_minor_locator(NullLocator())
    axes[0, 0].xaxis.set_major_locator(MultipleLocator(0.5))
    axes[0, 0].xaxis.set_major_formatter("{x:g}")
    figure.supxlabel("offset γ (dashed line: γ = −1, centered rows)", fontsize=11)


def _colour_bar(figure: Figure, axes: np.ndarray, norm: LogNorm, quantity: str) -> None:
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), ax=axes, aspect=35, pad=0.02)
    ticks = [tick for tick in TICKS if tick <= norm.vmax]
    bar.set_ticks(ticks, labels=[str(tick) for tick in ticks])
    bar.minorticks_off()
    what = {"rank": "rank (ε = 10⁻³)", "effective_rank": "effective rank"}[quantity]
    bar.set_label(f"{what} of the output")
