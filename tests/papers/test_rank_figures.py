"""Figure 1: its data are whole, its claim is checked cell by cell, its files repeat."""

import csv
from pathlib import Path

import numpy as np
import pytest

from oversmoothing.errors import InputError
from oversmoothing.papers import rank_claim, rank_figures, rank_panels

GAMMA = np.array([-1.05, -1.0, -0.95, 0.0])
RANK = np.array([[9, 9, 1, 1], [9, 9, 9, 9], [9, 5, 5, 3], [2, 1, 1, 1]], dtype=np.int16)


def cell(folder: Path, block: str = "pre_ln", weights: str = "uniform", rank=RANK, seed=0) -> tuple:
    folder = folder / f"{block}-{weights}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"curves-seed{seed}.npz"
    depth = np.arange(1, rank.shape[1] + 1)
    np.savez(path, gamma=GAMMA, depth=depth, rank=rank, effective_rank=np.maximum(rank, 1) * 0.9)
    return {"backbone": {"block": block, "weights": weights, "weight_std": 1.0}}, path, {}


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_ranks_are_saved_without_loss(tmp_path: Path) -> None:
    panels = rank_panels.load_panels([cell(tmp_path)])
    rank_panels.write_ranks(panels, tmp_path / "ranks.csv")
    changes = rows(tmp_path / "ranks.csv")
    assert len(changes) == 8
    rebuilt = np.zeros_like(RANK)
    for change in changes:
        g = list(GAMMA).index(float(change["gamma"]))
        rebuilt[g, int(change["depth_from"]) - 1 :] = int(change["rank"])
    assert np.array_equal(rebuilt, RANK)


def test_effective_ranks_are_sampled_with_both_ends(tmp_path: Path) -> None:
    deep = np.tile(RANK[:, :1], (1, 2000))
    panels = rank_panels.load_panels([cell(tmp_path, rank=deep)])
    rank_panels.write_effective_ranks(panels, tmp_path / "ranks.csv")
    depths = [int(row["depth"]) for row in rows(tmp_path / "ranks.csv")]
    assert depths[0] == 1 and depths[-1] == 2000 and 150 < len(depths) < 250
    assert rows(tmp_path / "ranks.csv")[0]["gamma=-0.95"] == "8.1"


def test_claim_names_the_cells_that_fail(tmp_path: Path) -> None:
    cells = [cell(tmp_path), cell(tmp_path, "post_ln", rank=np.array([[9], [9], [1], [1]]))]
    table = rank_claim.claim_table(cells).splitlines()
    assert "fails at 2 of 4 γ | −0.95 (3) | −1.05 (3)" in table[2]
    assert "holds | none | none" in table[3]
    rank_claim.write_claim(cells, tmp_path / "out")
    failing = rows(tmp_path / "out" / "fig1_claim.csv")
    assert [row["gamma"] for row in failing] == ["-1.05", "-0.95"]
    assert failing[0]["first_depth_of_rank_1"] == "3" and failing[1]["rank"] == "3"


def test_claim_puts_neighbours_together(tmp_path: Path) -> None:
    rank = np.array([[9], [9], [4], [2]])
    assert "−0.95 to 0 (2 to 4)" in rank_claim.claim_table([cell(tmp_path, rank=rank)])


def test_a_rank_that_is_not_finite_is_told(tmp_path: Path) -> None:
    rank = np.array([[9], [-1], [1], [-1]])
    table = rank_claim.claim_table([cell(tmp_path, rank=rank)])
    assert "0 (1 not finite) | −1 (1 not finite)" in table


def test_figures_leave_missing_panels_blank_and_repeat(tmp_path: Path) -> None:
    cells = [cell(tmp_path, "resi_dual", "normal"), cell(tmp_path), cell(tmp_path, seed=1)]
    files = rank_figures.draw_figures(cells, tmp_path / "out")
    assert sorted(path.suffix for path in files) == [".gz", ".gz", ".pdf", ".pdf", ".png", ".png"]
    first = [path.read_bytes() for path in files]
    assert [
        path.read_bytes() for path in rank_figures.draw_figures(cells, tmp_path / "out")
    ] == first
    panels = rank_panels.load_panels(cells)
    texts = [text.get_text() for text in rank_figures.heat_maps(panels, "rank").findobj(_is_text)]
    assert texts.count("not run") == 2 and "ResiDual\ndepth" in texts


def _is_text(artist: object) -> bool:
    return hasattr(artist, "get_text")


def test_bad_input_is_told(tmp_path: Path) -> None:
    config, path, result = cell(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="curves"):
        rank_panels.load_panels([(config, path, result)])
    with pytest.raises(InputError, match="experiment=rank_fig1"):
        rank_figures.draw_figures([], tmp_path)
