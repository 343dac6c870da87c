"""Mistakes of a command come together; ``tests/golden/mistakes.json`` has one of every class."""

import shlex
from pathlib import Path

import pytest

from oversmoothing.errors import Problems
from oversmoothing.lab.launch.command import command


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of earlier runs would hide mistakes: a finished run is not looked into."""
    monkeypatch.chdir(tmp_path)


def lines(line: str) -> list[str]:
    """What a command line is answered; it must not pass."""
    with pytest.raises(Problems) as caught:
        command(shlex.split(line))
    assert all("\n" not in problem for problem in caught.value.lines)
    return caught.value.lines


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("aggregator=Centered", "did you mean 'centered'?"),
        ("trainer.epocs=3", "no such key with trainer=adam; did you mean 'trainer.epochs'?"),
        ("lr=0.1", "did you mean 'trainer.lr'?"),
        ("then=layernorm", "choose its option by aggregator@then=…"),
        ("backbone=gat", "backbone=pyg backbone.conv=GATConv"),
        ("backbone.depth=2,4", "add -m, or write backbone.depth=[2,4]"),
        ("--multrun", "did you mean '--multirun'?"),
    ],
)
def test_a_mistake_has_one_line_with_the_way_out(line: str, hint: str) -> None:
    [found] = lines(line)
    assert hint in found


def test_impossible_combinations_are_told_with_the_way_out() -> None:
    assert lines("task=rank") == [
        "trainer: task rank has no use for it; add trainer=none",
        "data: task rank has no use for it; add data=none",
        "backbone: this task simulates RandomTransformer, got GCN; choose backbone=transformer",
    ]


def test_all_mistakes_of_a_command_come_together() -> None:
    """Names and types first; what only building the parts shows comes when these are right."""
    line = (
        "aggregator=centered aggregator.gamma=nan aggregator.gama=1 data=coro trainer.lr=fast "
        "seeds=[1,1] task.layer_metrics=1 hydra.foo=1 'seeds=[' ~threads --cofg=job"
    )
    starts = ["'seeds=['", "data", "~threads", "aggregator.gama", "hydra.foo", "seeds"]
    starts += ["task.layer_metrics", "aggregator.gamma", "trainer.lr"]
    assert lines(line)[0].startswith("--cofg=job: no such flag; did you mean '--cfg'?")
    assert [x.split(":")[0] for x in lines(line.replace("--cofg=job", ""))] == starts
    built = "aggregator=centered aggregator.warmup=-1 backbone.depth=0 trainer.lr=-1 device=cup"
    starts = ["trainer.lr", "aggregator.warmup", "device", "backbone.depth"]
    assert [found.split(":")[0] for found in lines(built)] == starts


def test_mistakes_in_the_files_of_a_folder_of_configs(tmp_path: Path) -> None:
    (tmp_path / "aggregator").mkdir()
    (tmp_path / "aggregator" / "mine.yml").write_text("_target_: mine.Mine\n")
    own = (
        "_target_: oversmoothing.aggregators.pairnorm.PairNorm\n_partial_: true\nscale: ${no.key}\n"
    )
    (tmp_path / "aggregator" / "own.yaml").write_text(own)
    [misnamed] = lines(f"--config-dir {tmp_path} aggregator=mine")
    assert misnamed.endswith("mine.yml is not read; rename it to mine.yaml")
    [missing] = lines(f"--config-dir {tmp_path} aggregator=own")
    assert "Interpolation key 'no.key' not found (at aggregator.scale)" in missing
