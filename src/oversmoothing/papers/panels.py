"""From rank simulations to the cells that their figures are drawn from."""

from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf

from oversmoothing.launch.execute import run_folder
from oversmoothing.papers.rank_panels import Cell
from oversmoothing.store.recorder import read_result


def panels_of(configs: Sequence[DictConfig]) -> list[Cell]:
    """Config, curves and result of every seed of every finished simulation."""
    cells = []
    for config in configs:
        folder, plain = run_folder(config), OmegaConf.to_container(config, resolve=True)
        found = (read_result(folder) or {}).get("seeds", {})
        for seed, result in found.items():
            if int(seed) not in config.seeds:
                continue
            cells.append((plain, folder / f"curves-seed{seed}.npz", result))
    return cells
