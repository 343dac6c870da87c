"""Words after -- of tables, searches and figures: they say how the runs are done, not which."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import other_runs, same_runs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.keys import flat
from oversmoothing.lab.launch.script import as_override
from oversmoothing.lab.store.identity import run_id

OTHER: dict[type, Any] = {bool: "true", int: "7", float: "0.123", str: "other", type(None): "3"}


@pytest.mark.parametrize(
    "words", [["experiment=gnn_table5", "aggregator=centered"], ["experiment=wsss_voc"]]
)
def test_an_accepted_key_changes_no_run_of_any_kind(words: list[str]) -> None:
    plain = compose_config(words)
    every = flat(OmegaConf.to_container(plain)).items()
    known = {key: value for key, value in every if not isinstance(value, dict)}
    accepted = {key for key in known if not other_runs([f"{key}=x"])}
    assert {"device", "threads", "paths.data", "paths.outputs"} <= accepted
    assert {"trainer.lr", "seeds", "backbone.depth"}.isdisjoint(accepted)
    for key in accepted:
        ours = compose_config([*words, f"{key}={OTHER.get(type(known[key]), 'x')}"])
        assert (run_id(ours), ours.seeds) == (run_id(plain), plain.seeds), key


def test_whatever_can_change_a_run_is_refused() -> None:
    words = ["backbone.depth=2", "aggregator=none", "aggregator@then=none", "aggregator={gamma: 0}"]
    words += ["++trainer.lr=9", "trainer._target_=x", "backbone.options.root=x", "seeds=[0]"]
    words += ["experiment=gnn_table6", "+logger@aggregator=none", "hydra.sweeper.params.seeds=3"]
    assert other_runs(["device=cpu", *words]) == words
    with pytest.raises(InputError, match="device, .*logger"):  # the keys that are accepted
        same_runs(words, ["experiment=gnn_table5"])


def test_words_that_say_how_are_accepted() -> None:
    words = ["device=cuda", "threads=1", "paths.outputs=x", "paths={data: x}", "logger=none"]
    words += ["trainer.workers=8", "data.root=x", "hydra.searchpath=[file:///x]", "+logger.tag=x"]
    assert other_runs([*words, "checkpoint_seconds=5", "matmul=highest"]) == []


def test_a_missing_folder_of_configs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        same_runs(as_override(str(tmp_path / "nowhere")), [])
    same_runs(as_override(str(tmp_path)), [])


def test_wrong_values_are_refused_before_a_plan() -> None:
    wrong = ["device=banana", "device=cpu,cuda", "trainer.workers=x", "threads=0", "logger=wandbb"]
    for word in wrong:
        with pytest.raises(InputError, match=f"^{word.split('=')[0]}[:=]"):
            same_runs([word], ["experiment=wsss_voc"])
    same_runs(["device=cuda", "trainer.workers=2"], ["experiment=wsss_voc"])
