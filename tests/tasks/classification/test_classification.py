"""Classification end to end on tiny crops: results, resuming, mistakes; and without training."""

import json
import re
from pathlib import Path

import pytest
import torch
from run_log import log_text

from oversmoothing.errors import Problems
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.weights import weights_path

OWN = ["logger=none", "threads=1", "device=cpu"]
TINY = [
    "experiment=cls_scenes",
    "seeds=[0]",
    "backbone.depth=2",
    "backbone.drop_path=0.2",
    "data.num_train=24",
    "data.num_val=10",
    "trainer.iterations=6",
    "trainer.warmup=2",
    "trainer.batch_size=8",
    "trainer.log_every=4",
    "task.repeats=2",
    "task.augment.rand_augment=rand-m9-mstd0.5-inc1",
    "task.augment.erase=0.25",
    "task.mix.prob=1.0",
    "task.evaluation.layer_images=2",
    *OWN,
]


def words(outputs: Path, *overrides: str) -> list[str]:
    return [*TINY, f"paths.outputs={outputs}", f"paths.cache={outputs.parent}/cache", *overrides]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("classification")


@pytest.fixture(scope="module")
def plain(folder: Path) -> dict:
    """Returns result and weights of an uninterrupted run."""
    config = compose_config(words(folder / "plain"))
    return {"result": execute(config)["seeds"]["0"], "weights": weights(config)}


def weights(config) -> torch.Tensor:
    state = torch.load(weights_path(run_folder(config), 0), weights_only=True)
    return torch.cat([value.flatten().float() for value in state.values()])


def test_results_say_what_was_measured_and_how(plain: dict, folder: Path) -> None:
    result = plain["result"]
    assert result["val_acc1"] % 10 == 0 and "val_acc5" not in result  # 10 images, 5 classes
    assert "10 images of scene_crops val" in result["conditions"]["val"]["acc1"]
    assert "last iteration" in result["conditions"]["val"]["acc1"]
    assert result["weights"] == "from scratch"
    for when in ("before", "after"):
        layers = result[f"layers_{when}"]
        assert {name: len(v) for name, v in layers.items()} == {
            "cosine": 2,
            "effective_rank": 2,
            "token_variance": 2,
            "attention_similarity": 2,
        }
    assert result["layers_before"] != result["layers_after"]
    [path] = (folder / "plain").glob("classification-*/s*/metrics.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 6]
    assert result["train_loss"] == lines[-1]["loss_cls"][0]


def test_parts_of_a_batch_do_what_the_whole_does(plain: dict, folder: Path) -> None:
    """Without drop path, whose draws come in another order."""
    both = []
    for parts in (1, 4):
        own = ["backbone.drop_path=0", f"trainer.accumulate={parts}", "trainer.eps=1e-3"]
        config = compose_config(words(folder / "parts", *own))
        execute(config)
        both.append(weights(config))
    torch.testing.assert_close(*both, atol=2e-5, rtol=1e-3)


def test_it_learns(folder: Path) -> None:
    """Easy crops, by their colours."""
    overrides = [
        "data.easy=true",
        "data.num_train=200",
        "data.num_val=50",
        "trainer.iterations=60",
        "trainer.warmup=5",
        "trainer.batch_size=16",
        "task.mix.prob=0",
        "task.repeats=1",
        "task.augment.rand_augment=null",
        "task.augment.erase=0",
        "backbone.drop_path=0",
    ]
    result = execute(compose_config(words(folder / "learns", *overrides)))["seeds"]["0"]
    assert result["val_acc1"] > 50  # by chance: 20


EVAL = ["experiment=cls_eval", "task.evaluation.layer_images=2", *OWN]


def test_pretrained_weights_are_measured_without_training(data_root: Path, folder: Path) -> None:
    own = [f"paths.data={data_root}", f"paths.outputs={folder}/eval", f"paths.cache={folder}/cache"]
    found = {}
    for gamma in ("0", "-1"):
        config = compose_config([*EVAL, *own, f"aggregator.gamma={gamma}"])
        found[gamma] = execute(config)["seeds"]["0"]
        assert not log_text(run_folder(config))
    assert found["0"]["conditions"]["accuracy"] == "not measured: 20 classes"
    assert found["0"]["weights"] == "pretrained" and "val_acc1" not in found["0"]
    last = {gamma: result["layers_before"]["cosine"] for gamma, result in found.items()}
    assert len(last["0"]) == 12 and last["0"] != last["-1"]


def test_without_training_only_token_networks_and_no_trainer(tmp_path: Path) -> None:
    own = ["data=scenes", "data.num_train=1", "data.num_val=1", f"paths.outputs={tmp_path}"]
    words = [*EVAL, *own, "backbone.weights=none", "backbone.sha256=null", "aggregator=none"]
    assert configs(words)
    for wrong in ("trainer=deit", "backbone=resnet18"):
        with pytest.raises(Problems, match=wrong.split("=")[0]):
            configs([*words, wrong])


@pytest.mark.parametrize(
    "wrong",
    ["task.augment.size=30", "task.evaluation.size=2", "trainer.batch_size=3", "task.repeats=0"],
)
def test_mistakes_are_found_before_any_work(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(Problems, match=re.escape(wrong.split("=")[0])):
        configs([*words(tmp_path / "out"), wrong])
