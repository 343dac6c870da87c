"""The panels of Figure 1 as data: what the runs left, and its CSV files."""

import csv
import gzip
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from oversmoothing.errors import InputError
from oversmoothing.store.files import write_atomically

Cell = tuple[dict[str, Any], Path, dict[str, Any]]  # config, curves-seed*.npz, the seed's result
BLOCKS = {"pre_ln": "Pre-LN", "post_ln": "Post-LN", "resi_dual": "ResiDual", "plain": "Plain"}
SAMPLES = 300  # of the depth, evenly spaced in its logarithm: 194 depths of 2000


@dataclass(frozen=True)
class Panel:
    """One seed of one network: ranks (G, D) by γ (G,) and depth (D,); rank −1 is not finite."""

    block: str
    weights: str
    seed: int
    gamma: np.ndarray
    depth: np.ndarray
    rank: np.ndarray
    effective_rank: np.ndarray
    result: dict[str, Any]

    @property
    def place(self) -> tuple[int, tuple[int, str]]:
        """Row and column in the figure: rows by block; columns identity, uniform, normal."""
        kinds = ("Identity", "Uniform", "Normal")
        kind = next(i for i, kind in enumerate(kinds) if self.weights.startswith(kind))
        return list(BLOCKS.values()).index(self.block), (kind, self.weights)


def load_panels(cells: Iterable[Cell]) -> list[Panel]:
    """Reads cells, in the order of the figure.

    Raises:
        InputError: a file that is missing or cannot be read, or that holds no grid of γ.
    """
    panels = [_load(*cell) for cell in cells]
    return sorted(panels, key=lambda panel: (panel.place, panel.seed))


def _load(config: dict[str, Any], path: Path, result: dict[str, Any]) -> Panel:
    names = ("gamma", "depth", "rank", "effective_rank")
    try:
        with np.load(path) as arrays:
            data = {name: arrays[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise InputError(
            f"{path}: no curves can be read ({error}); delete the run's folder"
        ) from None
    if np.isnan(data["gamma"]).any():
        raise InputError(f"{path}: has no grid of gamma; the figure needs runs with task.gammas")
    seed = int(Path(path).stem.removeprefix("curves-seed"))
    backbone = config["backbone"]
    return Panel(BLOCKS[backbone["block"]], _weights(backbone), seed, **data, result=result)


def _weights(backbone: dict[str, Any]) -> str:
    if backbone["weights"] != "normal":
        return {"identity": "Identity", "uniform": "Uniform U[0, 1]"}[backbone["weights"]]
    std = backbone["weight_std"]
    return "Normal N(0, 1/d)" if std == "fan_in" else f"Normal N(0, {std**2:g})"


def write_ranks(panels: list[Panel], path: Path) -> None:
    """All ranks without loss: a line wherever the rank changes, in force until the next line."""
    rows = []
    for panel in panels:
        for gamma, rank in zip(panel.gamma, panel.rank):
            starts = np.flatnonzero(np.diff(rank, prepend=rank[0] - 1))
            what = (panel.block, panel.weights, panel.seed, f"{gamma:g}")
            rows += [(*what, panel.depth[i], rank[i]) for i in starts]
    write_csv(path, ("block", "weights", "seed", "gamma", "depth_from", "rank"), rows)


def write_effective_ranks(panels: list[Panel], path: Path) -> None:
    """The effective rank at about 200 depths, evenly spaced in their logarithm; a column a γ.

    Raises:
        InputError: panels on different grids of γ.
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
    write_csv(path, ("block", "weights", "seed", "depth", *names), rows)


def write_csv(path: Path, header: Iterable[str], rows: Iterable[tuple]) -> None:
    """Writes a table, compressed where the name ends in .gz."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([tuple(header), *rows])
    content = text.getvalue().encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # the same data, the same file
    write_atomically(path, lambda file: file.write(content))
