"""Printed training commands of graph networks learn: they find more than the largest class.

Each runs at small size: one seed, a generated graph, at most 8 layers and 60 epochs. Networks
that end at chance do so there as well. Printed commands of the other tasks are left out: they need
data, weights, or minutes; only that they are accepted is tested (test_readme.py).
"""

import re
import shlex
from pathlib import Path

import pytest
from guide import ROOT
from omegaconf import DictConfig

from oversmoothing.lab.arguments import build
from oversmoothing.lab.launch.config import compose_config, plan
from oversmoothing.lab.launch.execute import execute
from oversmoothing.lab.store.identity import short_name
from oversmoothing.lab.train import FIRST

PRINTING = [ROOT / "train.py", ROOT / "src/oversmoothing/lab/train.py"]
PRINTING += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
PRINTING += [*(ROOT / "configs").rglob("*.yaml"), *(ROOT / "examples").glob("*.ipynb")]
PRINTING += [
    *ROOT.glob("*.md"),
    *(ROOT / "results").glob("*.md"),
    *(ROOT / "results/notes").glob("*"),
]
COMMAND = re.compile(
    r"(?<!\$ )(?:(?:python|torchrun \S+) train\.py|oversmoothing train)( .*|$)", re.M
)
CONTINUED = re.compile(r" *\\\n *#? *")
REMARK = re.compile(r" {2,}.*| #.*|`.*| \(.*")  # what a line says after its command
OVERRIDE = re.compile(r"-m|[\w@./]+=[^…<]+")
ELSEWHERE = ("hydra/sweeper", "task=")  # a search; a task of a user
SMALL = ["data=sbm", "data.num_nodes=500", "data.num_val=100", "logger=none"]


def networks(words: list[str]) -> list[DictConfig]:
    """The configs of a command with the most layers; none if it trains no graph network."""
    words = [word for word in words if word != "-m"] or FIRST
    found = plan(words, multirun=True).configs
    found = [config for config in found if short_name(config.task) == "nodes"]
    most = max((config.backbone.depth for config in found), default=0)
    return [config for config in found if config.backbone.depth == most]


def printed() -> dict[str, list[DictConfig]]:
    """Every printed command that trains graph networks."""
    found = {}
    for path in PRINTING:
        for line in COMMAND.findall(CONTINUED.sub(" ", path.read_text(encoding="utf-8"))):
            words = shlex.split(REMARK.sub("", f"{line} "))
            whole = all(OVERRIDE.fullmatch(w) and not w.startswith(ELSEWHERE) for w in words)
            if whole and (configs := networks([w for w in words if not w.startswith("hydra")])):
                found[" ".join(words)] = configs
    return found


def learns(config: DictConfig, outputs: Path) -> bool:
    """Whether a small run finds clearly more test nodes than there are in the largest class."""
    small = compose_config([*SMALL, f"paths.outputs={outputs}"])
    config.merge_with({"seeds": [0], "threads": 1, "device": "cpu", "paths": small.paths})
    config.data, config.logger = small.data, small.logger
    config.backbone.depth = min(config.backbone.depth, 8)
    config.trainer.epochs = min(config.trainer.epochs, 60)
    if "num_parts" in config.trainer:
        config.trainer.update(num_parts=6, parts_per_batch=1)
    graph = build(config.data)
    largest = graph.y[graph.test].bincount().max() / graph.test.sum()
    result = execute(config)
    assert result["chance"]["0"]["test_accuracy"] == pytest.approx(100 * largest)
    return result["seeds"]["0"]["test_accuracy"] > 100 * 1.3 * largest


@pytest.fixture(scope="session")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands find the runs that they share."""
    return tmp_path_factory.mktemp("printed")


@pytest.mark.parametrize("command", COMMANDS := printed())
def test_the_deepest_network_of_a_printed_command_learns(command: str, outputs: Path) -> None:
    """Of a sweep, at least one of its deepest networks: it may show what collapses."""
    assert any(learns(config, outputs) for config in COMMANDS[command])


def test_a_deep_network_without_a_method_does_not(outputs: Path) -> None:
    assert len(COMMANDS) > 20
    assert not any(learns(config, outputs) for config in networks(["backbone.depth=8"]))
