"""Sweeps, and that configs are those that Hydra composes."""

import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from oversmoothing.lab.launch.command import command, configs
from oversmoothing.lab.launch.config import CONFIGS, compose_config, loader, plan


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of earlier runs would hide mistakes: a finished run is not looked into."""
    monkeypatch.chdir(tmp_path)


def depths(line: str) -> list[int]:
    return [config.backbone.depth for config in command(shlex.split(line)).configs]


def test_what_sweeps_stand_for() -> None:
    assert depths("-m backbone.depth=2,4 trainer.lr=0.1,0.2") == [2, 2, 4, 4]
    assert depths("backbone.depth=range(2,5) -m seeds=[0]") == [2, 3, 4]  # -m anywhere
    assert depths("hydra.mode=MULTIRUN backbone.depth=choice(3,5)") == [3, 5]
    assert depths("-m backbone.depth=2,2 backbone.depth=3,3") == [3]  # the last word counts
    blocks = [
        c.backbone.block for c in configs(["experiment=rank_fig1", "backbone.weights=normal"])
    ]
    assert blocks == ["pre_ln", "post_ln", "resi_dual"]  # the sweep that it brings along
    every = plan(["task=glob(*)"], multirun=True)
    assert every.swept == [f"task={path.stem}" for path in sorted((CONFIGS / "task").glob("*"))]
    assert len(every.configs) == len({config.task._target_ for config in every.configs}) > 5


def test_only_other_launchers_and_questions_are_left_to_hydra() -> None:
    assert command(["-m", "backbone.depth=2"]).hydra is None
    assert command(["backbone.depth=2", "--cfg", "job"]).hydra == [
        "--cfg",
        "job",
        "backbone.depth=2",
    ]
    assert command(["--help"]).hydra == ["--help"] and command(["-sc", "query=bash"]).hydra


SAME = [
    "",
    "experiment=gnn_table6 data=cora aggregator=contranorm trainer.lr=1e-3",
    "aggregator=centered aggregator.gamma=-1 ++aggregator.warmup=3 seeds=[3] paths={outputs:x}",
    "experiment=prop1 paths.outputs=${paths.data}/x aggregator@then=layernorm threads=null",
]


@pytest.mark.parametrize("line", SAME)
def test_composes_as_hydra_does(line: str) -> None:
    words = shlex.split(line)
    ours = compose_config(words)
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        assert ours == compose("config", words)


def test_a_sweep_over_values_is_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = ["backbone.depth=range(1,11)", "trainer.lr=range(0.1,1.05,0.1)", "data.num_nodes=401"]
    compose_config(["data.num_nodes=1"])  # composes the default, unless another test has
    monkeypatch.setattr(loader(), "load_configuration", None)
    assert len(configs(sweep, multirun=True)) == 100
