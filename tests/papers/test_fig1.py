"""Figure 1: complete data, a claim that is checked cell by cell, reproducible files."""

import csv
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import run_folder
from oversmoothing.lab.papers import centered_fig1 as fig1
from oversmoothing.lab.store.results import write_result

GAMMA = np.array([-1.05, -1.0, -0.95, 0.0])
RANK = np.array([[9, 9, 1, 1], [9, 9, 9, 9], [9, 5, 5, 3], [2, 1, 1, 1]], dtype=np.int16)


def panel(folder: Path, block="pre_ln", weights="uniform", rank=RANK, seed=0) -> fig1.Panel:
    rank = np.asarray(rank)
    arrays = {"depth": np.arange(1, rank.shape[1] + 1), "effective_rank": 0.9 * rank.clip(1)}
    np.savez(folder / f"curves-seed{seed}.npz", gamma=GAMMA, rank=rank, **arrays)
    backbone = OmegaConf.create({"block": block, "weights": weights, "weight_std": 1.0})
    return fig1.read_panel(backbone, folder, seed)


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_ranks_are_saved_without_loss(tmp_path: Path) -> None:
    changes = rows(fig1.write_ranks([panel(tmp_path)], tmp_path / "ranks.csv"))
    assert len(changes) == 8
    rebuilt = np.zeros_like(RANK)
    for change in changes:
        g = list(GAMMA).index(float(change["gamma"]))
        rebuilt[g, int(change["depth_from"]) - 1 :] = int(change["rank"])
    assert np.array_equal(rebuilt, RANK)


def test_claim_names_the_cells_that_fail(tmp_path: Path) -> None:
    panels = [panel(tmp_path), panel(tmp_path, "post_ln", rank=[[9], [9], [1], [1]])]
    fig1.write_claim(panels, tmp_path)
    failing = rows(tmp_path / "fig1_claim.csv")
    assert [row["gamma"] for row in failing] == ["-1.05", "-0.95"]
    assert failing[0]["first_depth_of_rank_1"] == "3" and failing[1]["rank"] == "3"


@pytest.mark.parametrize(
    ("rank", "told"),
    [
        (RANK, "fails at 2 of 4 γ | −0.95 (3) | −1.05 (3)"),
        ([[9], [9], [1], [1]], "holds | none | none"),
        ([[9], [9], [4], [2]], "−0.95 to 0 (2 to 4)"),  # neighbours are put together
        ([[9], [-1], [1], [-1]], "0 (1 not finite) | −1 (1 not finite)"),
    ],
)
def test_the_claim_in_a_table(rank: list, told: str, tmp_path: Path) -> None:
    assert told in fig1.claim_table([panel(tmp_path, rank=rank)])


def test_only_finished_seeds_that_are_asked_for_are_read(tmp_path: Path) -> None:
    words = ["experiment=rank_fig1", f"paths.outputs={tmp_path}", "seeds=[1,2]"]
    config = compose_config([*words, "backbone.block=pre_ln", "backbone.weights=uniform"])
    folder = run_folder(config)
    folder.mkdir()
    assert fig1.panels_of([config]) == []
    for seed in (0, 1):
        panel(folder, seed=seed)
    write_result(folder, {"seeds": {"0": {}, "1": {}}})
    [found] = fig1.panels_of([config])
    assert (found.seed, found.block, found.weights) == (1, "Pre-LN", "Uniform U[0, 1]")
