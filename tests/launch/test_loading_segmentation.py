"""Loading a run of supervised segmentation, predicting with it, HEM's figures of it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import here
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.image_set import read_mask
from oversmoothing.lab.launch import loading
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.segmentation import Evaluator

SEGMENTATION = [
    "task=segmentation",
    "data=scenes",
    "data.num_train=6",
    "data.num_val=3",
    "data.size=[40,48]",
    "backbone=resnet18",
    "backbone.weights=none",
    "backbone.dim=16",
    "aggregator=hem",
    "aggregator.num_bases=3",
    "trainer=emanet",
    "trainer.iterations=2",
    "trainer.batch_size=2",
    "trainer.workers=0",
    "task.head_dim=8",
    "task.aux_weight=0.4",
    "task.augment.crop=33",
    "task.evaluation.ms_scales=[]",
    "task.evaluation.size=40",
    "task.evaluation.workers=0",
    "seeds=[1]",
    "logger=none",
    "threads=1",
    "device=cpu",
]


@pytest.fixture(scope="module")
def segmentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with masks."""
    outputs = tmp_path_factory.mktemp("segmentation")
    config = compose_config([*SEGMENTATION, f"paths.outputs={outputs}"])
    execute(config)
    return run_folder(config)


def test_segmentation_run_measures_as_it_did(segmentation: Path) -> None:
    run = loading.load(segmentation, on="cpu", tasks=("segmentation",))
    state = torch.load(segmentation / "weights-seed1.pt", weights_only=True)
    own = run.network.state_dict()
    assert run.seed == 1 and own.keys() == state.keys()
    tensors = [key for key, value in state.items() if isinstance(value, torch.Tensor)]
    assert all(torch.equal(own[key], state[key]) for key in tensors)
    assert run.label_names == run.data.label_names == ("background", *run.classes)
    evaluation = build(run.config.task.evaluation)
    evaluator = Evaluator(
        run.network, run.data, evaluation, torch.device("cpu"), Recorder(segmentation, [1])
    )
    expected = execute(run.config)["seeds"]["1"]
    assert evaluator.split("val")["val_seg_miou"] == expected["val_seg_miou"]
    with pytest.raises(InputError, match=r"a run of task=segmentation; expected task=wsss"):
        loading.load(segmentation)


def test_hem_figures_of_a_segmentation_run(
    segmentation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, stem = ["--run", str(segmentation), "--seed", "1"], ["--stem", str(tmp_path / "four")]
    assert here(["figure.py", "hem_fig4", *words, *stem], monkeypatch) == 0
    assert Image.open(tmp_path / "four.png").width > 500
    words += ["--samples", "2", "--iterations", "3", "--folder", str(tmp_path)]
    assert here(["figure.py", "hem_fig3", *words], monkeypatch) == 0
    content = json.loads((tmp_path / "hem_fig3.json").read_text())
    assert list(content["profiles"]) == ["2"]  # nothing was trained
    assert here(["figure.py", "hem_fig3", *words, "--", "device=cpu"], monkeypatch) == 2


def test_fig4_names_the_command_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert here(["figure.py", "hem_fig4"], monkeypatch) == 2
    command = "python train.py experiment=seg_voc_subset aggregator=hem 'seeds=[0]'"
    assert command in capsys.readouterr().err


def test_predict_draws_the_masks_of_segmentation_runs(
    segmentation: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    run = loading.load(segmentation, on="cpu", tasks=("segmentation",))
    id = run.data.val[0]
    words = ["predict.py", id, "--run", str(segmentation), "--out", str(tmp_path / "out")]
    assert here([*words, "--compare", str(segmentation)], monkeypatch) == 0
    evaluator = Evaluator(
        run.network, run.data, build(run.config.task.evaluation), torch.device("cpu"),
        Recorder(segmentation, [1])
    )  # fmt: skip
    expected = evaluator.predict(run.data.image(id).float() / 255).numpy()
    assert np.array_equal(read_mask(tmp_path / "out" / f"{id}-mask.png"), expected)
    assert Image.open(tmp_path / "out" / f"{id}.png").width > 700  # image, truth, two masks
    assert here([*words, "--labels", "disc"], monkeypatch) == 2
    assert "error: --labels: for runs of task=wsss" in capsys.readouterr().err
