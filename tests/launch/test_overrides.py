"""Words after -- of tables, searches and figures: they say how the runs are done, not which."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import other_runs, same_runs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.script import as_override
from oversmoothing.lab.store.identity import run_id

SCRIPTS = Path(__file__).parents[2] / "scripts"
OTHER = {bool: "true", int: "7", float: "0.123", str: "another", type(None): "3"}


def leaves(node: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Full key -> value of everything that a word can set."""
    found: dict[str, Any] = {}
    for key, value in node.items():
        inner = isinstance(value, dict)
        found |= leaves(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return found


@pytest.mark.parametrize(
    "words",
    [["experiment=gnn_table5", "aggregator=centered"], ["experiment=wsss_voc"]],
)
def test_an_accepted_key_changes_no_run_of_any_kind(words: list[str]) -> None:
    plain = compose_config(words)
    known = leaves(OmegaConf.to_container(plain))
    accepted = {key for key in known if not other_runs([f"{key}=x"])}
    assert {"device", "threads", "paths.data", "paths.outputs"} <= accepted
    assert {"trainer.lr", "seeds", "backbone.depth"}.isdisjoint(accepted)
    for key in accepted:
        ours = compose_config([*words, f"{key}={OTHER.get(type(known[key]), 'x')}"])
        assert (run_id(ours), ours.seeds) == (run_id(plain), plain.seeds), key


@pytest.mark.parametrize(
    "word",
    [
        "backbone.depth=2",
        "aggregator=none",
        "aggregator@then=none",
        "aggregator={gamma: 0}",
        "++trainer.lr=9",
        "trainer._target_=x",
        "backbone.options.root=x",
        "seeds=[0]",
        "experiment=gnn_table6",
        "+logger@aggregator=none",
        "hydra.sweeper.params.seeds=3",
    ],
)
def test_whatever_can_change_a_run_is_refused(word: str) -> None:
    assert other_runs([word, "device=cpu"]) == [word]


def test_words_that_say_how_are_accepted() -> None:
    words = ["device=cuda", "threads=1", "paths.outputs=x", "paths={data: x}", "logger=none"]
    words += ["trainer.workers=8", "data.root=x", "hydra.searchpath=[file:///x]", "+logger.tag=x"]
    assert other_runs([*words, "checkpoint_seconds=5", "matmul=highest"]) == []


@pytest.mark.parametrize(
    "words",
    [
        ["table.py", "table5", "--plan", "--", "backbone.depth=2"],  # as the first cell has it
        ["tune.py", "table6", "--data", "cora", "--columns", "L=2", "--", "trainer.lr=9"],
    ],
)
def test_scripts_refuse_them_in_one_line(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(SCRIPTS / words[0]), run_name="__main__")
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: overrides {words[-1]}: they may change which runs these are")
    assert "give only checkpoint_seconds, deterministic, device, logger," in line


def test_a_table_takes_no_sweep() -> None:
    with pytest.raises(InputError, match="threads=1,2: expected one value"):
        same_runs(["device=cpu", "threads=1,2"])


def test_a_missing_folder_of_configs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder of configs"):
        same_runs(as_override(str(tmp_path / "nowhere")))
    same_runs(as_override(str(tmp_path)))
