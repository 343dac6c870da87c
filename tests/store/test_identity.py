"""Which configs are the same run."""

import json
from pathlib import Path

import pytest
import yaml
from hydra.utils import get_object
from omegaconf import open_dict

from oversmoothing.lab.launch.config import CONFIGS, compose_config
from oversmoothing.lab.store import identity as module
from oversmoothing.lab.store.identity import current, hashed, identity, ids, run_id, run_name

RECORDS = sorted((Path(__file__).parents[2] / "results").glob("*.jsonl"))
BASE = ["experiment=gnn_table5", "data=sbm", "aggregator=centered"]
IMAGES = ["experiment=wsss_voc"]
CENTERED = "oversmoothing.aggregators.centered.Centered"


@pytest.mark.parametrize(
    "same",
    [
        ["seeds=[7,8]"],
        ["device=cuda", "threads=3", "deterministic=warn", "matmul=highest"],
        ["paths.outputs=elsewhere", "paths.data=somewhere"],
        ["logger=none"],
        ["aggregator.gamma=-1", "backbone.depth=2"],  # -1 and -1.0, and default values
    ],
)
def test_how_a_run_is_done_does_not_name_it(same: list[str]) -> None:
    assert run_id(compose_config(BASE + same)) == run_id(compose_config(BASE))


@pytest.mark.parametrize(
    "other",
    [
        ["aggregator.gamma=-0.5"],
        ["backbone.depth=4"],
        ["aggregator@then=none"],
        ["trainer.lr=0.01"],
        ["data.homophily=0.3"],
        ["aggregator=pairnorm"],
    ],
)
def test_what_a_run_computes_names_it(other: list[str]) -> None:
    assert run_id(compose_config(BASE + other)) != run_id(compose_config(BASE))


def test_other_weights_are_another_run() -> None:
    weights = ["", "backbone.weights=null", "backbone.weights=${paths.data}/other.pth"]
    runs = [compose_config(["experiment=wsss_voc_subset", *filter(None, [of])]) for of in weights]
    assert len({*map(run_id, runs)}) == 3


def test_an_identity_holds_public_names_and_what_is_not_frozen() -> None:
    node = identity(compose_config(["backbone.depth=5"]))["backbone"]
    assert node == {"_part_": "backbone/gcn", "depth": 5.0, "streams": 2.0}


def test_the_name_is_readable_and_ends_in_the_id() -> None:
    config = compose_config(BASE)
    assert run_name(config) == f"nodes-csbm-centered-layernorm-{run_id(config)}"


@pytest.mark.parametrize(
    "same",
    [
        ["trainer.workers=7", "trainer.log_every=3", "task.evaluation.workers=5"],
        ["trainer.betas=[0.9,0.999]", "task.augment.scale=[0.5,2]"],  # lists that are default
    ],
)
def test_nor_who_reads_images_nor_lists_that_are_default(same: list[str]) -> None:
    assert run_id(compose_config(IMAGES + same)) == run_id(compose_config(IMAGES))
    shown = identity(compose_config(IMAGES + same))
    assert "betas" not in shown["trainer"] and "scale" not in shown["task"]["augment"]


def test_a_list_that_is_not_default_names_a_run() -> None:
    other = compose_config([*IMAGES, "task.evaluation.splits=[train]"])
    assert run_id(other) != run_id(compose_config(IMAGES))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict:
    """A copy of the table that a test may change."""
    copy = json.loads(json.dumps(module._table()))
    monkeypatch.setattr(module, "_table", lambda: copy)
    for function in (module._names, module._defaults):
        function.cache_clear()
    yield copy
    for function in (module._names, module._defaults):
        function.cache_clear()


def test_moving_a_class_changes_no_id(table: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_config(BASE)
    before = run_id(config)
    monkeypatch.setattr(module, "Moved", get_object(CENTERED), raising=False)
    moved = "oversmoothing.lab.store.identity.Moved"
    table["parts"]["aggregator/centered"]["targets"].insert(0, moved)
    module._names.cache_clear()
    assert run_id(config) == before  # a config of before the move
    config.aggregator._target_ = moved
    assert run_id(config) == before
    assert current({"a": [{"_target_": CENTERED}]}) == {"a": [{"_target_": moved}]}


def test_an_option_that_is_gone_is_left_out_of_old_configs_at_its_default() -> None:
    method = {"_target_": "oversmoothing.wsss.method.Method", "start": 5.0, "toco_compat": False}
    assert current(method).keys() == {"_target_", "start"}
    assert current(method | {"toco_compat": True})["toco_compat"]  # refused by its name


def test_changing_a_default_changes_the_ids_of_runs_that_relied_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = compose_config(BASE)
    explicit = run_id(config)
    with open_dict(config):
        del config.aggregator["gamma"]
    assert run_id(config) == explicit
    real = module._defaults
    changed = {"gamma": -0.5}
    monkeypatch.setattr(
        module, "_defaults", lambda t: real(t) | (changed if t.endswith("Centered") else {})
    )
    assert run_id(config) != explicit
    assert identity(config)["aggregator"]["gamma"] == -0.5


def test_a_part_from_elsewhere_is_named_by_its_path_and_options() -> None:
    config = compose_config(BASE)
    config.aggregator = {"_target_": "torch.nn.Threshold", "threshold": 1}
    found = identity(config)["aggregator"]
    assert found == {"_part_": "torch.nn.Threshold", "threshold": 1.0, "inplace": False}


def targets() -> set[str]:
    """Every class and function that a YAML names."""

    def walk(node: object) -> set[str]:
        if not isinstance(node, dict):
            return set()
        own = {node["_target_"]} if "_target_" in node else set()
        return own.union(*(walk(value) for value in node.values()))

    contents = (yaml.safe_load(path.read_text()) for path in CONFIGS.rglob("*.yaml"))
    found = set().union(*map(walk, contents))
    return {target for target in found if not target.startswith("hydra_plugins.")}


@pytest.mark.parametrize("target", sorted(targets()))
def test_every_part_has_a_name_and_every_option_a_frozen_default(target: str) -> None:
    """An option that is missing here would change the ids of all earlier runs."""
    part = module._table()["parts"][module._names()[target]]
    assert part["targets"][0] == target
    of_network = {"heads", "channels"} if ".aggregators." in target else set()
    options = module._defaults(target).keys() - {*module.NEUTRAL, *of_network}
    assert options <= part.get("defaults", {}).keys()  # the default of an option that is gone stays


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_committed_records_keep_their_ids(path: Path) -> None:
    """As today's code sees the config of each; a marked part tells a new run from its record."""
    for record in map(json.loads, path.read_text("utf-8").splitlines()):
        assert hashed(record["config"]) == record["id"] == record["name"].rpartition("-")[2]
        node = json.loads(json.dumps(record["config"]), object_hook=_as_config)
        assert record["id"] in ids(node)
        part = module._table()["parts"].get(record["config"]["backbone"].get("_part_"), {})
        earlier = not part.get("marks", {}).keys() <= record["config"]["backbone"].keys()
        assert (run_id(node) != record["id"]) == earlier


def _as_config(node: dict) -> dict:
    if (name := node.pop("_part_", None)) is not None:
        for mark in module._table()["parts"][name].get("marks", {}):
            node.pop(mark, None)
    return node | ({"_target_": module._table()["parts"][name]["targets"][0]} if name else {})
