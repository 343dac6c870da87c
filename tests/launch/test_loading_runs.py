"""Loading a trained run, predicting with it, figures of it: end to end on tiny scenes."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import here
from omegaconf import OmegaConf
from PIL import Image

from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import read_mask
from oversmoothing.lab.launch import loading
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.papers.centered_fig2 import figure2
from oversmoothing.lab.tasks.wsss.pictures import distinct_classes, look_at
from oversmoothing.metrics.segmentation import Confusion

ROOT = Path(__file__).parents[2]
TINY = [
    "experiment=wsss_scenes",
    "trainer=toco_smoke",
    "trainer.iterations=2",
    "trainer.warmup=1",
    "backbone.name=test_vit",
    "data.num_train=6",
    "data.num_val=6",
    "data.size=[40,48]",
    "task.augment.crop=32",
    "task.evaluation.size=32",
    "task.evaluation.ms_size=32",
    "task.evaluation.ms_scales=[1.0]",
    "task.evaluation.crf=null",
    "task.evaluation.limit=2",
    "task.evaluation.workers=0",
    "task.method.start=1",
    "logger=none",
    "threads=1",
    "device=cpu",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with centering and one without."""
    outputs = tmp_path_factory.mktemp("outputs")
    found = {}
    for name, words in {"centered": [], "none": ["aggregator=none"]}.items():
        config = compose_config([*TINY, *words, f"paths.outputs={outputs}"])
        execute(config)
        found[name] = run_folder(config)
    return found


def test_loaded_network_is_the_trained_one(folders: dict[str, Path], tmp_path: Path) -> None:
    moved = shutil.copytree(folders["centered"], tmp_path / folders["centered"].name)
    run = loading.load(moved, seed=0, on="cpu")
    state = torch.load(folders["centered"] / "weights-seed0.pt", weights_only=True)
    own = run.network.state_dict()
    assert own.keys() == state.keys()
    tensors = [key for key, value in state.items() if isinstance(value, torch.Tensor)]
    assert all(torch.equal(own[key], state[key]) for key in tensors)
    assert run.classes == run.data.classes == ("disc", "square", "triangle", "ellipse", "star")
    assert run.title == "γ = −1"
    assert not run.network.training
    result = execute(run.config)["seeds"]["0"]  # it is there: nothing is trained
    assert result["val_cam_iou"].keys() == {"background", *run.classes}


def test_a_frozen_position_embedding_is_that_of_the_run(
    folders: dict[str, Path], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    copied = shutil.copytree(folders["none"], tmp_path / "copied") / "config.yaml"
    frozen = copied.read_text().replace("freeze_pos_embed: false", "freeze_pos_embed: true")
    copied.write_text(frozen)
    network = loading.load(copied.parent, on="cpu").network
    assert not all(parameter.requires_grad for parameter in network.parameters())
    assert not [warning for warning in recwarn if "random" in str(warning.message)]


def test_numbers_of_a_loaded_network_are_those_of_its_run(folders: dict[str, Path]) -> None:
    run = loading.load(folders["none"], on="cpu")
    assert run.title == "without centering"
    count = Confusion(6)
    for id in (run.data.val[0], run.data.val[3]):  # two, evenly spaced
        look = look_at(run.task.viewer(run.network), run.data, id)
        count.update(torch.from_numpy(look.mask).long(), run.data.mask(id))
    expected = execute(run.config)["seeds"]["0"]["val_seg_ms_miou"]
    assert count.miou() == pytest.approx(expected, abs=1e-9)


def test_errors_say_what_is_missing(folders: dict[str, Path], tmp_path: Path) -> None:
    def refused(message: str, *given: object) -> None:
        with pytest.raises(InputError, match=message):
            loading.load(*given)

    refused("no such run; expected a run's folder, name or id", tmp_path / "nothing")
    refused("no weights of seed 7; known seeds: 0", folders["none"], 7)
    copy = shutil.copytree(folders["none"], tmp_path / "copy")
    weights = copy / "weights-seed0.pt"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused("damaged", copy)
    torch.save({"classifier.weight": torch.zeros(5, 64, 1, 1)}, weights)
    refused("does not fit the config.yaml", copy)
    weights.unlink()
    refused(r"weights are missing.*seeds: 0\); remove result.json there and run its command", copy)
    (copy / "result.json").unlink()
    refused(r"no trained weights yet.*seeds: 0\); run its command again", copy)
    config = OmegaConf.load(copy / "config.yaml")
    config.task = {"_target_": "oversmoothing.lab.tasks.nodes.Nodes", "layer_metrics": False}
    OmegaConf.save(config, copy / "config.yaml")
    refused("task=nodes store no weights", copy, None, "cpu", ("nodes",))
    (copy / "config.yaml").write_text("task: {_target_: oversmoothing.tasks.nodes.run}")
    refused("a run of task=nodes; expected task=wsss", copy)
    refused("expected task=segmentation", copy, None, "cpu", ("segmentation",))


def test_weights_that_run_code_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = shutil.copytree(folders["none"], tmp_path / "copy")
    torch.save({"x": Path("/")}, copy / "weights-seed0.pt")
    with pytest.raises(InputError, match="damaged"):
        loading.load(copy)


def test_predict_does_what_it_can(folders: dict[str, Path], tmp_path: Path) -> None:
    run = loading.load(folders["centered"], on="cpu")
    known, other = run.data.val[:2]
    good, broken = Path(run.data.image_files[other]), tmp_path / "broken.jpg"
    broken.write_bytes(good.read_bytes()[:300])
    missing = tmp_path / "missing.jpg"
    command = [sys.executable, ROOT / "scripts/predict.py", missing, broken, known, good]
    command += ["--run", folders["centered"], "--compare", folders["none"], "--device", "cpu"]
    command += ["--out", tmp_path / "out", "--pdf"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    errors = done.stderr.strip().splitlines()
    assert done.returncode == 1, done.stderr
    assert len(errors) == 2 and str(missing) in errors[0] and str(broken) in errors[1]
    for id in (known, other):
        assert Image.open(tmp_path / "out" / f"{id}.png").width > 1000
        assert (tmp_path / "out" / f"{id}.pdf").stat().st_size
        expected = look_at(run.task.viewer(run.network), run.data, id).mask
        assert np.array_equal(read_mask(tmp_path / "out" / f"{id}-mask.png"), expected)


def test_predict_refuses_unknown_classes(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    words = ["predict.py", "x.jpg", "--run", str(folders["none"]), "--labels", "disk"]
    assert here(words, monkeypatch) == 2
    assert capsys.readouterr().err == "error: --labels: no class 'disk'; did you mean 'disc'?\n"


@pytest.mark.parametrize(
    ("images", "said"),
    [(["cat.png"], "cat.png lies there"), (["a/1.jpg", "b/1.jpg"], "have the same name")],
)
def test_a_picture_replaces_no_image(
    images: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cat.png").write_bytes(b"precious")
    assert here(["predict.py", *images, "--run", "none", "--out", "."], monkeypatch) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert Path("cat.png").read_bytes() == b"precious"


def test_figure2(folders: dict[str, Path]) -> None:
    without, centered = (loading.load(folders[name], on="cpu") for name in ("none", "centered"))
    ids = distinct_classes(centered.data, 2)
    figure = figure2(without, centered, ids)
    titles = [text.get_text() for text in figure.texts]
    networks = ("without centering", "γ = −1")
    maps = [f"{what}, {title}" for what in ("CAM", "mask") for title in networks]
    assert titles == ["image", "ground truth", *maps]
    assert len(figure.axes) == 12
    for id in ids:  # the mask has classes of the label only, if they are given
        mask = look_at(centered.task.viewer(centered.network, known=True), centered.data, id).mask
        assert set(np.unique(mask)) <= {0, *centered.data.present[id]}
    with pytest.raises(InputError, match="nothing: no image of scenes"):
        figure2(without, centered, ["nothing"])


def test_fig2_names_the_command_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert here(["figure.py", "fig2"], monkeypatch) == 2
    command = "python train.py experiment=wsss_voc_subset aggregator=none 'seeds=[0]'"
    assert command in capsys.readouterr().err
