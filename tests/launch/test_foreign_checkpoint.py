"""A checkpoint of another network, as an earlier version may have left it: one line."""

import sys
from pathlib import Path

import pytest
import torch

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.attempts import attempt
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.execute import run_folder
from oversmoothing.lab.store.checkpoints import restoring
from oversmoothing.lab.store.recorder import Recorder

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from torture_areas.commands import words  # noqa: E402

FOREIGN = {"weight": torch.zeros(2)}
STATE = {
    **{"network": FOREIGN, "model": FOREIGN, "optimizer": {}, "curves": {}, "chosen": []},
    **{"step": 1, "epoch": 1, "phase": "training", "device": "cpu"},
}


@pytest.mark.parametrize("task", ["nodes", "minibatch", "segmentation", "glue", "rank"])
def test_a_state_of_another_network_is_named(task: str, tmp_path: Path) -> None:
    [config] = configs(words(task, tmp_path / "outputs"))
    Recorder(run_folder(config), list(config.seeds)).save_checkpoint(STATE)
    said = attempt(config)
    assert "checkpoint.pt: does not fit this run" in said and "\n" not in said
    assert "remove checkpoint.pt and checkpoint-before.pt" in said


def test_moments_of_another_size_are_named(tmp_path: Path) -> None:
    layers = [torch.nn.Linear(2, size) for size in (3, 4)]
    optimizers = [torch.optim.Adam(layer.parameters()) for layer in layers]
    layers[0](torch.ones(2)).sum().backward()
    optimizers[0].step()
    line = r"exp_avg is \(3, 2\) for \(4, 2\)"
    with pytest.raises(InputError, match=line), restoring(tmp_path, optimizers[1]):
        optimizers[1].load_state_dict(optimizers[0].state_dict())
