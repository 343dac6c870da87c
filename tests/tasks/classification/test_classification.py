"""Classification end to end on tiny crops, and without training."""

from pathlib import Path

import pytest
import torch
from run_log import log_text
from small_runs import words as small

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.weights import weights_path

OWN = "aggregator=none data.num_train=16 trainer.iterations=3 trainer.warmup=1"
OWN += " trainer.batch_size=8 task.repeats=2 device=cpu"
OWN += " task.augment.rand_augment=rand-m9-mstd0.5-inc1"


def words(outputs: Path, *overrides: str) -> list[str]:
    return small("classification", outputs, *OWN.split(), *overrides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("classification")


def weights(config) -> torch.Tensor:
    state = torch.load(weights_path(run_folder(config), 0), weights_only=True)
    return torch.cat([value.flatten().float() for value in state.values()])


def test_parts_of_a_batch_do_what_the_whole_does(folder: Path) -> None:
    both = []
    for parts in (1, 4):
        own = [f"trainer.accumulate={parts}", "trainer.eps=1e-3"]
        config = compose_config(words(folder / "parts", *own))
        execute(config)
        both.append(weights(config))
    torch.testing.assert_close(*both, atol=2e-5, rtol=1e-3)


def test_it_learns(folder: Path) -> None:
    """Easy crops, by their colours."""
    own = "data.easy=true data.num_train=200 data.num_val=50 trainer.iterations=60 trainer.warmup=5"
    own += " trainer.batch_size=16 task.mix.prob=0 task.repeats=1 task.augment.rand_augment=null"
    own += " task.augment.erase=0"
    result = execute(compose_config(words(folder / "learns", *own.split())))["seeds"]["0"]
    assert result["val_acc1"] > 50  # by chance: 20


EVAL = ["experiment=cls_eval", "task.evaluation.layer_images=2", "logger=none", "threads=1"]


def test_pretrained_weights_are_measured_without_training(data_root: Path, folder: Path) -> None:
    own = [f"paths.data={data_root}", f"paths.outputs={folder}/eval", f"paths.cache={folder}/cache"]
    found = {}
    for gamma in ("0", "-1"):
        config = compose_config([*EVAL, "device=cpu", *own, f"aggregator.gamma={gamma}"])
        found[gamma] = execute(config)["seeds"]["0"]
        assert not log_text(run_folder(config))
    assert found["0"]["conditions"]["accuracy"] == "not measured: 20 classes"
    assert found["0"]["weights"] == "pretrained" and "val_acc1" not in found["0"]
    last = {gamma: result["layers_before"]["cosine"] for gamma, result in found.items()}
    assert len(last["0"]) == 12 and last["0"] != last["-1"]
