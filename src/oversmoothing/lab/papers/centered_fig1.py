"""Figure 1 of Centered Self-Attention Layers: the rank of random transformers by γ and depth.

    oversmoothing figure fig1 --jobs 2
    oversmoothing figure fig1 --folder small -- backbone.depth=200 task.gammas=-1.5:1.5:0.5

It runs the missing panels, draws all panels, and checks the paper's claim in each of them: rank 1
for every γ > −1 and for no γ ≤ −1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, NullLocator
from omegaconf import DictConfig

from oversmoothing.errors import InputError, described
from oversmoothing.lab.drawing.files import save, write_csv
from oversmoothing.lab.drawing.panels import STYLE
from oversmoothing.lab.launch.command import configs, other_runs, run_all
from oversmoothing.lab.launch.execute import run_folder
from oversmoothing.lab.launch.script import split_words, whole
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.store.files import require_writable, write_text
from oversmoothing.lab.store.results import read_result

EXPERIMENT = "experiment=rank_fig1"
BLOCKS = {"pre_ln": "Pre-LN", "post_ln": "Post-LN", "resi_dual": "ResiDual", "plain": "Plain"}
QUANTITIES = {"rank": "rank", "effective_rank": "effective rank"}
SAMPLES = 300  # depths, evenly spaced in the logarithm: 194 distinct ones of 2000
COLOURS = "viridis"  # perceptually uniform
TICKS = (1, 2, 5, 10, 20, 50, 100)
MAPS = STYLE | {"axes.titlesize": 9, "figure.dpi": 200}
FAILURE = ("block", "weights", "seed", "gamma", "depth", "rank", "first_depth_of_rank_1",
           "how_the_claim_fails")  # fmt: skip


def main(argv: list[str]) -> int:
    """Draws the figure; returns 1 if a run failed, whose panel is left blank."""
    parser = figure_parser(__doc__, overrides=True)
    parser.add_argument("--jobs", type=whole(), default=1, help="number of processes side by side")
    parser.add_argument("--folder", type=Path, help="where the figure of another grid goes")
    words, overrides = split_words(argv)
    options = parser.parse_args(words)
    chosen = configs([EXPERIMENT, *overrides])
    if options.folder is None and options.target == RESULTS and other_runs(overrides):
        raise InputError(
            "--publish: with these overrides, which draw another figure than the paper's, "
            "name a --folder for it"
        )
    folder = options.folder or options.target / "fig1"
    require_writable(folder, "--folder")  # before the runs
    failed = run_all(chosen, options.jobs)
    panels = panels_of(chosen)
    paths = draw_figures(panels, folder, options.pdf) + write_claim(panels, folder)
    print(claim_table(panels), *paths, sep="\n")
    return 1 if failed else 0


@dataclass(frozen=True)
class Panel:
    """A panel: the measurements of one seed of one network.

    Args:
        block: name of the block.
        weights: description of the distribution of the weights.
        seed: of the weights.
        gamma: offsets γ, (G,).
        depth: numbers of layers, (D,).
        rank: (G, D); −1 where the output is not finite.
        effective_rank: (G, D).
    """

    block: str
    weights: str
    seed: int
    gamma: np.ndarray
    depth: np.ndarray
    rank: np.ndarray
    effective_rank: np.ndarray

    @property
    def place(self) -> tuple[int, tuple[int, str]]:
        """Row and column in the figure: rows by block; columns identity, uniform, normal."""
        kinds = ("Identity", "Uniform", "Normal")
        kind = next(i for i, kind in enumerate(kinds) if self.weights.startswith(kind))
        return list(BLOCKS.values()).index(self.block), (kind, self.weights)


def panels_of(configs: Sequence[DictConfig]) -> list[Panel]:
    """Reads each finished seed of the runs of some configs, in the order of the figure.

    Raises:
        InputError: a file is missing or damaged, or its run had no grid of γ.
    """
    panels = []
    for config in configs:
        folder = run_folder(config)
        finished = (read_result(folder) or {}).get("seeds", {})
        seeds = [seed for seed in config.seeds if str(seed) in finished]
        panels += [read_panel(config.backbone, folder, seed) for seed in seeds]
    return sorted(panels, key=lambda panel: (panel.place, panel.seed))


def read_panel(backbone: DictConfig, folder: Path, seed: int) -> Panel:
    """Reads ``curves-seed<seed>.npz`` in the folder of a run; raises as ``panels_of``."""
    names, path = ("gamma", "depth", "rank", "effective_rank"), folder / f"curves-seed{seed}.npz"
    try:
        with np.load(path) as arrays:
            data = {name: arrays[name] for name in names}
    except Exception as error:  # numpy may raise any error for a damaged file
        why = f"no curves can be read ({described(error)}); delete the run's folder"
        raise InputError(f"{path}: {why}") from None
    if np.isnan(data["gamma"]).any():
        raise InputError(f"{path}: has no grid of gamma; the figure needs runs with task.gammas")
    std = "1/d" if backbone.weight_std == "fan_in" else f"{backbone.weight_std**2:g}"
    weights = {
        "identity": "Identity",
        "uniform": "Uniform U[0, 1]",
        "normal": f"Normal N(0, {std})",
    }
    return Panel(BLOCKS[backbone.block], weights[backbone.weights], seed, **data)


def draw_figures(panels: Sequence[Panel], folder: Path, pdf: bool = False) -> list[Path]:
    """Draws the heat maps, writes their data, and returns the paths.

    Args:
        panels: of each network and seed; a panel that is missing is left blank.
        folder: for the pictures, ``fig1_<quantity>`` or, of one kind of weights, both in ``fig1``,
            and for ``fig1_<quantity>.csv.gz``.

    Raises:
        InputError: there are no panels, or panels have different grids of γ.
    """
    if not panels:
        raise InputError("figure 1: no finished run; run `python train.py experiment=rank_fig1`")
    one = len({panel.place[1] for panel in panels}) == 1
    groups = {"fig1": [*QUANTITIES]} if one else {f"fig1_{name}": [name] for name in QUANTITIES}
    files = [
        path
        for name, quantities in groups.items()
        for path in save(heat_maps(panels, quantities), folder / name, pdf)
    ]
    for quantity, write in (("rank", write_ranks), ("effective_rank", write_effective_ranks)):
        files.append(write(panels, folder / f"fig1_{quantity}.csv.gz"))
    return files


def _sampled(deepest: int) -> np.ndarray:
    """Returns depths that are evenly spaced in the logarithm."""
    return np.unique(np.geomspace(1, deepest, SAMPLES).round().astype(int))


def write_ranks(panels: Sequence[Panel], path: Path) -> Path:
    """Writes all ranks without loss: a line is valid from its depth to that of the next line."""
    rows = []
    for panel in panels:
        for gamma, rank in zip(panel.gamma, panel.rank):
            starts = np.flatnonzero(np.diff(rank, prepend=rank[0] - 1))
            place = (panel.block, panel.weights, panel.seed, f"{gamma:g}")
            rows += [(*place, panel.depth[i], rank[i]) for i in starts]
    return write_csv(path, ("block", "weights", "seed", "gamma", "depth_from", "rank"), rows)


def write_effective_ranks(panels: Sequence[Panel], path: Path) -> Path:
    """Writes the effective rank at about 200 depths, evenly spaced in the logarithm, by γ.

    Raises:
        InputError: panels have different grids of γ.
    """
    gammas = panels[0].gamma
    if any(not np.array_equal(panel.gamma, gammas) for panel in panels):
        raise InputError("task.gammas: one figure needs the same gammas in all its runs")
    rows = []
    for panel in panels:
        for i in _sampled(len(panel.depth)) - 1:
            values = (f"{value:.5g}" for value in panel.effective_rank[:, i])
            rows.append((panel.block, panel.weights, panel.seed, panel.depth[i], *values))
    names = (f"gamma={gamma:g}" for gamma in gammas)
    return write_csv(path, ("block", "weights", "seed", "depth", *names), rows)


# The claim


def write_claim(panels: Sequence[Panel], folder: Path) -> list[Path]:
    """Writes ``fig1_claim.md``, one line per panel, and ``fig1_claim.csv``, one per failing γ."""
    paths = [folder / "fig1_claim.md", folder / "fig1_claim.csv"]
    write_text(paths[0], claim_table(panels))
    rows = [row.values() for panel in panels for row in failures(panel)]
    write_csv(paths[1], FAILURE, rows)
    return paths


def failures(panel: Panel) -> list[dict[str, Any]]:
    """Returns the γ at which a panel contradicts the claim, with their numbers and the reason."""
    rows = []
    for gamma, rank in zip(panel.gamma, panel.rank):
        if how := _how(gamma, rank[-1]):
            low = np.flatnonzero((rank >= 0) & (rank <= 1))
            first = int(panel.depth[low[0]]) if len(low) else None
            values = (panel.block, panel.weights, panel.seed, float(f"{gamma:g}"))
            values += (int(panel.depth[-1]), int(rank[-1]), first, how)
            rows.append(dict(zip(FAILURE, values)))
    return rows


def _how(gamma: float, final_rank: int) -> str | None:
    if final_rank < 0:
        return "the output is not finite"
    if gamma > -1 and final_rank > 1:
        return "gamma > -1, yet the rank is still above 1"
    if gamma <= -1 and final_rank <= 1:
        return "gamma <= -1, yet the rank has fallen to 1"
    return None


def claim_table(panels: Sequence[Panel]) -> str:
    """Returns a Markdown table of the γ at which the claim fails, for each panel and seed.

    It shows the final rank for γ > −1, and the first depth with rank 1 for γ ≤ −1. Neighbouring γ
    are joined to ranges.
    """
    lines = [
        "| block | weights | seed | depth | claim "
        "| γ > −1, yet the rank stays above 1 (final rank) "
        "| γ ≤ −1, yet the rank falls to 1 (first at depth) |",
        "|---|---|---|---|---|---|---|",
    ]
    for panel in panels:
        failed = failures(panel)
        claim = f"fails at {len(failed)} of {len(panel.gamma)} γ" if failed else "holds"
        above = _entries(panel, [row for row in failed if row["gamma"] > -1], "rank")
        fallen = [row for row in failed if row["gamma"] <= -1]
        fallen = _entries(panel, fallen, "first_depth_of_rank_1")
        what = (panel.block, panel.weights, panel.seed, panel.depth[-1], claim, above, fallen)
        lines.append(f"| {' | '.join(map(str, what))} |")
    return "\n".join(lines) + "\n"


def _entries(panel: Panel, rows: list[dict[str, Any]], name: str) -> str:
    """Formats neighbouring γ with the range of their entries: ``−0.95 to −0.8 (2 to 4)``."""
    grid = [float(f"{gamma:g}") for gamma in panel.gamma]
    groups: list[list[dict[str, Any]]] = []
    for row in rows:
        place = grid.index(row["gamma"])
        if groups and grid.index(groups[-1][-1]["gamma"]) == place - 1:
            groups[-1].append(row)
        else:
            groups.append([row])
    return ", ".join(_entry(group, name) for group in groups) or "none"


def _entry(group: list[dict[str, Any]], name: str) -> str:
    known = sorted(row[name] for row in group if row["rank"] >= 0)
    lost = "" if len(known) == len(group) else f"{len(group) - len(known)} not finite"
    shown = ", ".join(filter(None, (_span(known), lost)))
    return f"{_span([row['gamma'] for row in group])} ({shown})"


def _span(values: list[float]) -> str:
    ends = dict.fromkeys(f"{value:g}".replace("-", "−") for value in values[:1] + values[-1:])
    return " to ".join(ends)


# The heat maps


@matplotlib.rc_context(MAPS)
def heat_maps(panels: Sequence[Panel], quantities: Sequence[str], title: str = "") -> Figure:
    """Draws blocks as rows, and weights and quantities as columns; means over seeds.

    Args:
        title: instead of the range of each quantity after the last layer.
    """
    rows = {panel.place[0]: panel.block for panel in panels}
    columns = [(p, q) for p in sorted({panel.place[1] for panel in panels}) for q in quantities]
    size = (max(4.6, 1.1 + 1.4 * len(columns)), 1.3 + 1.35 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
    norm = LogNorm(1, max(2, *(panel.rank.max() for panel in panels)))
    for i, row in enumerate(sorted(rows)):
        axes[i, 0].set_ylabel(f"{rows[row]}\ndepth")
        for j, (column, quantity) in enumerate(columns):
            here = [panel for panel in panels if panel.place == (row, column)]
            _draw(axes[i, j], here, quantity, norm)
    for axis, ((_, weights), quantity) in zip(axes[0], columns):
        axis.set_title(f"W: {weights}" if len(quantities) == 1 else QUANTITIES[quantity])
    _label(axes[0, 0], max(int(panel.depth[-1]) for panel in panels))
    weights = "" if len(quantities) == 1 else f"\nweights: {columns[0][0][1]}"
    figure.supxlabel(f"offset γ (dashed: γ = −1, centered rows){weights}", fontsize=9)
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), ax=axes, aspect=35, pad=0.02)
    ticks = [tick for tick in TICKS if tick <= norm.vmax]
    bar.set_ticks(ticks, labels=[str(tick) for tick in ticks])
    bar.minorticks_off()
    bar.set_label("dark: collapsed to one direction")
    title = title or "\n".join(_finding(panels, quantity) for quantity in quantities)
    figure.suptitle(title, fontsize=8.5)
    return figure


def _finding(panels: Sequence[Panel], quantity: str) -> str:
    """Returns the range of the quantity over the panels after the last layer, at γ = 0 and −1."""
    parts = []
    for gamma in (0, -1):
        ends = [
            getattr(panel, quantity)[i, -1]
            for panel in panels
            for i in np.flatnonzero(np.isclose(panel.gamma, gamma))
            if panel.rank[i, -1] >= 0
        ]
        if ends:
            sign = "−1" if gamma else "0"
            parts.append(f"{min(ends):.3g} to {max(ends):.3g} at γ = {sign}")
    depth = max(int(panel.depth[-1]) for panel in panels)
    return f"{QUANTITIES[quantity]} after {depth} layers: {', '.join(parts)}"


def _draw(axes: Axes, seeds: list[Panel], quantity: str, norm: LogNorm) -> None:
    axes.set_facecolor("0.8")
    if not seeds:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center")
        return
    values = np.mean([getattr(panel, quantity) for panel in seeds], axis=0, dtype=float)
    lost = np.any([panel.rank < 0 for panel in seeds], axis=0)
    values = np.ma.masked_where(lost, np.maximum(values, 1))  # a zero matrix is shown as rank 1
    gamma, depth = _edges(seeds[0].gamma), _edges(seeds[0].depth)
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


def _label(axes: Axes, deepest: int) -> None:
    """Sets the ticks, which all panels share."""
    ticks = [tick for tick in (1, 10, 100, 1000) if tick < 0.4 * deepest]
    axes.set_yticks([*ticks, deepest], [str(tick) for tick in (*ticks, deepest)])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MultipleLocator(1))
    axes.xaxis.set_major_formatter("{x:g}")
