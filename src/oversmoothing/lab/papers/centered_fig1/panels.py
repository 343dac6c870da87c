"""The panels of Figure 1 as data, read from the folders of their runs, and as CSV files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from omegaconf import DictConfig

from oversmoothing.errors import InputError
from oversmoothing.lab.drawing.files import write_csv
from oversmoothing.lab.launch.execute import run_folder
from oversmoothing.lab.store import arrays
from oversmoothing.lab.store.recorder import read_result

BLOCKS = {"pre_ln": "Pre-LN", "post_ln": "Post-LN", "resi_dual": "ResiDual", "plain": "Plain"}
SAMPLES = 300  # depths, evenly spaced in the logarithm: 194 distinct ones of 2000


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
    """Reads ``curves-seed<seed>.npz``.

    Args:
        backbone: config of the network.
        folder: of the run.

    Raises:
        InputError: the file is missing or damaged, or its run had no grid of γ.
    """
    names, path = ("gamma", "depth", "rank", "effective_rank"), folder / f"curves-seed{seed}.npz"
    try:
        data = arrays.load(path, names)
    except ValueError as error:
        why = f"no curves can be read ({error}); delete the run's folder"
        raise InputError(f"{path}: {why}") from None
    if np.isnan(data["gamma"]).any():
        raise InputError(f"{path}: has no grid of gamma; the figure needs runs with task.gammas")
    return Panel(BLOCKS[backbone.block], _weights(backbone), seed, **data)


def _weights(backbone: DictConfig) -> str:
    if backbone.weights != "normal":
        return {"identity": "Identity", "uniform": "Uniform U[0, 1]"}[backbone.weights]
    std = backbone.weight_std
    return "Normal N(0, 1/d)" if std == "fan_in" else f"Normal N(0, {std**2:g})"


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
        for i in np.unique(np.geomspace(1, len(panel.depth), SAMPLES).round().astype(int)) - 1:
            values = (f"{value:.5g}" for value in panel.effective_rank[:, i])
            rows.append((panel.block, panel.weights, panel.seed, panel.depth[i], *values))
    names = (f"gamma={gamma:g}" for gamma in gammas)
    return write_csv(path, ("block", "weights", "seed", "depth", *names), rows)
