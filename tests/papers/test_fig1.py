"""Figure 1: complete data, a claim that is checked cell by cell, reproducible files."""

import csv
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.lab.papers.centered_fig1 import (
    Panel,
    claim_table,
    draw_figures,
    heat_maps,
    panels_of,
    read_panel,
    write_claim,
    write_effective_ranks,
    write_ranks,
)

GAMMA = np.array([-1.05, -1.0, -0.95, 0.0])
RANK = np.array([[9, 9, 1, 1], [9, 9, 9, 9], [9, 5, 5, 3], [2, 1, 1, 1]], dtype=np.int16)


def panel(
    folder: Path, block: str = "pre_ln", weights: str = "uniform", rank=RANK, seed=0
) -> Panel:
    depth = np.arange(1, rank.shape[1] + 1)
    arrays = {
        "gamma": GAMMA,
        "depth": depth,
        "rank": rank,
        "effective_rank": np.maximum(rank, 1) * 0.9,
    }
    np.savez(folder / f"curves-seed{seed}.npz", **arrays)
    backbone = OmegaConf.create({"block": block, "weights": weights, "weight_std": 1.0})
    return read_panel(backbone, folder, seed)


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_ranks_are_saved_without_loss(tmp_path: Path) -> None:
    write_ranks([panel(tmp_path)], tmp_path / "ranks.csv")
    changes = rows(tmp_path / "ranks.csv")
    assert len(changes) == 8
    rebuilt = np.zeros_like(RANK)
    for change in changes:
        g = list(GAMMA).index(float(change["gamma"]))
        rebuilt[g, int(change["depth_from"]) - 1 :] = int(change["rank"])
    assert np.array_equal(rebuilt, RANK)


def test_effective_ranks_are_sampled_with_both_ends(tmp_path: Path) -> None:
    deep = np.tile(RANK[:, :1], (1, 2000))
    write_effective_ranks([panel(tmp_path, rank=deep)], tmp_path / "ranks.csv")
    depths = [int(row["depth"]) for row in rows(tmp_path / "ranks.csv")]
    assert depths[0] == 1 and depths[-1] == 2000 and 150 < len(depths) < 250
    assert rows(tmp_path / "ranks.csv")[0]["gamma=-0.95"] == "8.1"


def test_claim_names_the_cells_that_fail(tmp_path: Path) -> None:
    panels = [panel(tmp_path), panel(tmp_path, "post_ln", rank=np.array([[9], [9], [1], [1]]))]
    table = claim_table(panels).splitlines()
    assert "fails at 2 of 4 γ | −0.95 (3) | −1.05 (3)" in table[2]
    assert "holds | none | none" in table[3]
    write_claim(panels, tmp_path)
    failing = rows(tmp_path / "fig1_claim.csv")
    assert [row["gamma"] for row in failing] == ["-1.05", "-0.95"]
    assert failing[0]["first_depth_of_rank_1"] == "3" and failing[1]["rank"] == "3"


def test_claim_puts_neighbours_together(tmp_path: Path) -> None:
    rank = np.array([[9], [9], [4], [2]])
    assert "−0.95 to 0 (2 to 4)" in claim_table([panel(tmp_path, rank=rank)])


def test_a_rank_that_is_not_finite_is_told(tmp_path: Path) -> None:
    rank = np.array([[9], [-1], [1], [-1]])
    table = claim_table([panel(tmp_path, rank=rank)])
    assert "0 (1 not finite) | −1 (1 not finite)" in table


def test_figures_leave_missing_panels_blank_and_repeat(tmp_path: Path) -> None:
    panels = [panel(tmp_path, "resi_dual", "normal"), panel(tmp_path), panel(tmp_path, seed=1)]
    files = draw_figures(panels, tmp_path / "out", pdf=True)
    assert [path.suffix for path in files] == [".png", ".pdf", ".gz"] * 2
    first = [path.read_bytes() for path in files]
    again = draw_figures(panels, tmp_path / "out", pdf=True)
    assert [path.read_bytes() for path in again] == first
    texts = [text.get_text() for text in heat_maps(panels, "rank").findobj(_is_text)]
    assert texts.count("not run") == 2 and "ResiDual\ndepth" in texts


def _is_text(artist: object) -> bool:
    return hasattr(artist, "get_text")


def test_only_finished_seeds_that_are_asked_for_are_read(tmp_path: Path) -> None:
    from oversmoothing.lab.launch.config import compose_config
    from oversmoothing.lab.launch.execute import run_folder
    from oversmoothing.lab.store.results import write_result

    words = ["experiment=rank_fig1", f"paths.outputs={tmp_path}", "seeds=[1,2]"]
    words += ["backbone.block=pre_ln", "backbone.weights=uniform"]
    config = compose_config(words)
    folder = run_folder(config)
    folder.mkdir()
    assert panels_of([config]) == []
    for seed in (0, 1):
        panel(folder, seed=seed)
    write_result(folder, {"seeds": {"0": {}, "1": {}}})
    [found] = panels_of([config])
    assert (found.seed, found.block, found.weights) == (1, "Pre-LN", "Uniform U[0, 1]")


def test_bad_input_is_refused(tmp_path: Path) -> None:
    panel(tmp_path)
    path = tmp_path / "curves-seed0.npz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="no curves can be read"):
        read_panel(OmegaConf.create(), tmp_path, 0)
    with pytest.raises(InputError, match="experiment=rank_fig1"):
        draw_figures([], tmp_path)
