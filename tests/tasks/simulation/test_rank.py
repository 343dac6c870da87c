"""The rank task: saved files, results, resuming, and refusals."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from run_log import log_text
from run_task import run_task

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.transformer import RandomTransformer
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks import rank
from oversmoothing.lab.tasks.rank import Rank

BACKBONE = partial(RandomTransformer, block="post_ln", depth=12, num_tokens=10, dim=10)
CENTERED = [partial(Centered, gamma=-1.0), NoAggregator]
NAMES = {"gamma", "depth", "rank", "effective_rank", "cosine", "token_variance"}


class Killed(Recorder):
    """Checkpoints after every layer and dies after the fifth."""

    saved = 0

    def checkpoint_due(self) -> bool:
        return True

    def save_checkpoint(self, state: dict) -> None:
        super().save_checkpoint(state)
        self.saved += 1
        if self.saved == 5:
            raise KeyboardInterrupt


def simulate(
    folder: Path, seeds: list[int], kind: type[Recorder] = Recorder, **options
) -> dict[int, dict]:
    task = Rank(**{"gammas": [-1.0, 0.0], **options})
    return run_task(task, folder, BACKBONE, CENTERED, seeds, kind)


def curves(folder: Path, seed: int = 0) -> dict[str, np.ndarray]:
    with np.load(folder / f"curves-seed{seed}.npz") as arrays:
        return dict(arrays)


def test_attention_collapses_and_centering_does_not(tmp_path: Path) -> None:
    result = simulate(tmp_path, [0])[0]
    assert result["final_rank"] == [10, 1]
    assert result["first_depth_of_rank_1"][0] is None
    saved = curves(tmp_path)
    assert set(saved) == NAMES and saved["rank"].dtype == np.int16
    assert saved["rank"].shape == (2, 12) and list(saved["depth"]) == list(range(1, 13))
    first = result["first_depth_of_rank_1"][1]
    assert (saved["rank"][1, : first - 1] > 1).all() and saved["rank"][1, first - 1] == 1
    assert saved["cosine"][1, -1] == pytest.approx(1)


def test_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = simulate(tmp_path / "whole", [0, 1])
    with pytest.raises(KeyboardInterrupt):
        simulate(tmp_path / "killed", [0, 1], Killed)
    assert simulate(tmp_path / "killed", [0, 1]) == whole
    for seed in (0, 1):
        undisturbed, resumed = (curves(tmp_path / name, seed) for name in ("whole", "killed"))
        assert all(np.array_equal(undisturbed[name], resumed[name]) for name in NAMES)
    log = [log_text(tmp_path / name) for name in ("whole", "killed")]
    assert log[0] == log[1] and log[0].count("\n") == 12


def test_without_gammas_any_aggregator_will_do(tmp_path: Path) -> None:
    result = run_task(Rank(), tmp_path, BACKBONE, [LayerNorm, NoAggregator], [0])[0]
    assert result["gammas"] is None and len(result["final_rank"]) == 1
    assert "claim_holds" not in result


def test_overflow_is_recorded_and_does_not_crash(tmp_path: Path) -> None:
    backbone = partial(BACKBONE, block="plain", weights="normal", weight_std=1e60)
    result = run_task(Rank(gammas=[0.0]), tmp_path, backbone, CENTERED, [0])[0]
    assert result["final_rank"] == [None] and result["not_finite"] == [0.0]
    assert curves(tmp_path)["rank"][0, -1] == rank.NOT_FINITE


def test_grid_holds_minus_one_exactly() -> None:
    grid = rank.gamma_grid("-1.5:1.5:0.05")
    assert len(grid) == 61 and grid[10] == -1.0 and grid[30] == 0.0 and grid[-1] == 1.5


@pytest.mark.parametrize("others", [[NoAggregator], [Centered, Centered]])
def test_gammas_need_their_aggregator(tmp_path: Path, others: list) -> None:
    with pytest.raises(InputError, match="task.gammas=null"):
        run_task(Rank(gammas=[0.0]), tmp_path, BACKBONE, others, [0])


def test_another_backbone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="backbone=transformer"):
        run_task(Rank(), tmp_path, partial(torch.nn.Linear, 3, 3), CENTERED, [0])
    with pytest.raises(InputError, match="backbone.depth"):
        run_task(Rank(), tmp_path, partial(BACKBONE, depth=0), CENTERED, [0])


def test_a_gamma_that_the_grid_would_hide_is_refused(tmp_path: Path) -> None:
    hidden = [partial(Centered, gamma=0.5), NoAggregator]
    with pytest.raises(InputError, match=r"aggregator\.gamma: task\.gammas says"):
        run_task(Rank(gammas=[-1.0]), tmp_path, BACKBONE, hidden, [0])
