"""A new aggregator takes one file and one YAML, in any folder outside the repo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oversmoothing.launch import command as check
from oversmoothing.launch.execute import execute

ROOT = Path(__file__).parents[1]

MODULE = '''\
"""Subtracts a learned part of the mean token."""

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.base import After, Context


class MeanShift(After):
    """x − f · (mean token), with f learned for each channel.

    Args:
        dim: channels C; whoever asks for it gets it from the backbone.
        fraction: f at the start; 1 centers the tokens, 0 leaves them.

    Shapes: x (..., N, C) -> (..., N, C).
    """

    def __init__(self, dim: int, fraction: float = 0.5) -> None:
        super().__init__()
        self.fraction = nn.Parameter(torch.full((dim,), float(fraction)))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return x - self.fraction * x.mean(dim=-2, keepdim=True)
'''
YAML = """\
# Subtracts a learned part of the mean token.
_target_: mean_shift.MeanShift
_partial_: true
fraction: 0.5   # at the start; 1 centers the tokens, 0 leaves them
"""
SMALL = ["data.num_nodes=400", "trainer.epochs=4", "seeds=[0,1]", "logger=none", "threads=1"]
RANK = ["task=rank", "data=none", "trainer=none", "backbone=transformer", "backbone.depth=4"]
RANK += ["backbone.num_tokens=8", "backbone.dim=8", "task.gammas=null", "seeds=[0]", "logger=none"]


@pytest.fixture
def methods(tmp_path: Path) -> Path:
    """The user's folder."""
    folder = tmp_path / "my methods"  # a space, as users have
    (folder / "aggregator").mkdir(parents=True)
    (folder / "mean_shift.py").write_text(MODULE)
    (folder / "aggregator/mean_shift.yaml").write_text(YAML)
    return folder


def test_the_commands_of_the_readme(methods: Path) -> None:
    words = ["-m", "--config-dir", methods.name, *SMALL, "aggregator=mean_shift"]
    words += ["aggregator.fraction=0,0.5", "aggregator@then=layernorm"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *words],
        cwd=methods.parent,
        env={**os.environ, "PYTHONPATH": methods.name},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    runs = done.stdout.splitlines()
    assert len(runs) == 2
    assert all(run.startswith("nodes-sbm-mean_shift-layernorm-") for run in runs)


def rank_of(outputs: Path, *words: str) -> dict:
    [config] = check.configs([*RANK, f"paths.outputs={outputs}", *words])
    return execute(config)["seeds"]["0"]


def test_in_the_rank_simulation(
    methods: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """f = 0 changes nothing; f = 1 takes the mean of the mixed tokens out, so the rank stays up."""
    monkeypatch.syspath_prepend(methods)
    own = [f"hydra.searchpath=['file://{methods}']", "aggregator=mean_shift"]
    plain = rank_of(tmp_path / "a")
    assert rank_of(tmp_path / "b", *own, "aggregator.fraction=0") == plain
    whole = rank_of(tmp_path / "c", *own, "aggregator.fraction=1", "backbone.block=plain")
    assert whole["final_rank"] != rank_of(tmp_path / "d", "backbone.block=plain")["final_rank"]


def test_did_you_mean_knows_it(methods: Path) -> None:
    with pytest.raises(check.Problems, match="did you mean 'mean_shift'"):
        check.command(["--config-dir", str(methods), "aggregator=men_shift"])


def test_the_readme_shows_this_code() -> None:
    readme = (ROOT / "README.md").read_text()
    assert MODULE in readme and YAML in readme
    assert "--config-dir my_methods aggregator=mean_shift" in readme
