"""Propositions 1 and 2 in small cases."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from run_task import run_task

from oversmoothing.aggregators.centered import Centered
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.transformer import RandomTransformer
from oversmoothing.lab.tasks.propositions import Propositions

SIZE = {"depth": 30, "num_tokens": 12, "dim": 12}
PLAIN = partial(RandomTransformer, block="plain", value="identity", weights="normal", **SIZE)


def check(folder: Path, proposition: int, draws: int, seeds: list[int], **options) -> dict:
    backbone = partial(PLAIN, **{"shared": proposition == 1, **options})
    task = Propositions(proposition, draws, gammas=[0.0, -1.0])
    return run_task(task, folder, backbone, [Centered], seeds)


def test_proposition_1_in_a_small_case(tmp_path: Path) -> None:
    result = check(tmp_path, 1, 1, [0])[0]
    plain, centered = result["by_gamma"]
    assert result["holds"] and plain["holds"] and plain["depth"] == 30 and plain["rank"] == 1
    assert plain["ratio"] < 1e-12 and plain["verdict"].endswith("holds")
    assert not centered["holds"] and centered["rank"] > 1
    assert centered["depth"] < 30 and "lost in rounding" in centered["verdict"]


def test_proposition_2_in_a_small_case(tmp_path: Path) -> None:
    result = check(tmp_path, 2, 8, [0])[0]
    assert result["holds"] and result["by_gamma"][0]["draw_rank"] == 1


def test_a_case_where_the_rank_stays_is_told(tmp_path: Path) -> None:
    """Attention of one token to itself alone mixes nothing: the claim must be able to fail."""
    result = check(tmp_path, 1, 1, [0], weights="identity", depth=1)[0]
    assert result["holds"] is False and "does not hold" in result["by_gamma"][0]["verdict"]


def test_the_mean_is_over_the_draws_of_a_seed(tmp_path: Path) -> None:
    check(tmp_path / "together", 2, 3, [0, 1])
    with np.load(tmp_path / "together" / "curves-seed1.npz") as arrays:
        together = dict(arrays)
    model = RandomTransformer([Centered], [3, 4, 5], "plain", "normal", value="identity", **SIZE)
    first = next(model.outputs()).mean(dim=0)[0]
    sigma = torch.linalg.svdvals(first)
    assert together["ratio"][1, 0] == pytest.approx((sigma[1] / sigma[0]).item(), rel=1e-9)
    check(tmp_path / "alone", 2, 3, [1])
    with np.load(tmp_path / "alone" / "curves-seed1.npz") as alone:
        assert all(np.array_equal(together[name], alone[name]) for name in together)


@pytest.mark.parametrize("wrong", [{"block": "pre_ln"}, {"value": "drawn"}, {"shared": False}])
def test_other_backbones_are_refused(tmp_path: Path, wrong: dict) -> None:
    with pytest.raises(InputError, match=f"backbone.{next(iter(wrong))}=.*experiment=prop1"):
        check(tmp_path, 1, 1, [0], **wrong)
