"""Supervised segmentation end to end on tiny scenes: learning, kill -9, several processes."""

from pathlib import Path

import pytest
import torch
from processes import by_two, perform, without_error
from run_log import log_lines
from small_runs import words as small

from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.weights import weights_path

OWN = "data.num_train=12 data.num_val=3 data.easy=true backbone.output_stride=16 device=cpu"
OWN += " trainer.accumulate=1 task.augment.crop=49 task.evaluation.ms_scales=[]"


def words(outputs: Path, *overrides: str) -> list[str]:
    return small("segmentation", outputs, *OWN.split(), *overrides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("segmentation")


def test_it_learns_to_tell_things_from_their_background(folder: Path) -> None:
    """After 20 steps the loss is well below that of the start."""
    config = compose_config(
        words(folder / "learns", "trainer.iterations=20", "trainer.lr=0.05", "data.num_train=24")
    )
    execute(config)
    lines = log_lines(run_folder(config))
    first, last = lines[0]["loss_seg"][0], sum(x["loss_seg"][0] for x in lines[-5:]) / 5
    assert last < 0.6 * first


def test_two_processes_keep_one_set_of_bases(folder: Path) -> None:
    """After one step: on a CPU the head's batch norms see a process's share, and the ways part."""
    calm = ["backbone=deit_ti", "backbone.name=test_vit", "backbone.weights=none"]
    words_ = [w for w in words(folder / "two") if not w.startswith("backbone")]
    ours = [*words_, *calm, "task.augment.crop=48", "trainer.iterations=1"]
    without_error(by_two(perform, ["train.py", *ours]))
    alone = [w.replace(str(folder / "two"), str(folder / "one")) for w in ours]
    one, two = compose_config(alone), compose_config(ours)
    execute(one)
    first, second = (
        torch.load(weights_path(run_folder(c), 0), weights_only=True) for c in (one, two)
    )
    bases = [key for key in first if key.endswith(".bases")]
    assert bases
    for key in bases:
        torch.testing.assert_close(second[key], first[key], atol=1e-6, rtol=1e-5)


def test_a_crop_off_the_grid_of_the_features_is_one_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"task\.augment\.crop=40: .*; 49, a multiple"):
        configs(words(tmp_path / "out", "task.augment.crop=40", "backbone.output_stride=16"))
