"""Trained networks are loaded and drawn with the numbers of their runs."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import here
from omegaconf import OmegaConf
from PIL import Image
from tiny_trained import trained

from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.image_set import read_mask
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute
from oversmoothing.lab.launch.trained import TrainedRun, load, untrained
from oversmoothing.lab.papers.centered_fig2 import figure2
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.overlap import Confusion
from oversmoothing.lab.tasks.segmentation import Evaluator
from oversmoothing.lab.tasks.wsss.pictures import distinct_classes, look_at


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run with centering and two seeds, one without, and one of supervised segmentation."""
    outputs = tmp_path_factory.mktemp("outputs")
    return {name: trained(name, outputs) for name in ("centered", "none", "segmentation")}


def loaded(folder: Path, seed: int | None = None) -> TrainedRun:
    return load(folder, seed, "cpu", ("wsss", "segmentation"))


def segments(run: TrainedRun) -> Evaluator:
    """The evaluator that the training of a segmentation run used."""
    own, cpu = build(run.config.task.evaluation), torch.device("cpu")
    return Evaluator(run.network, run.data, own, cpu, Recorder(run.folder, [run.seed]))


# Loading


@pytest.mark.parametrize("name, seed", [("centered", 0), ("centered", 1), ("segmentation", 1)])
def test_loaded_network_is_the_trained_one(
    name: str, seed: int, folders: dict[str, Path], tmp_path: Path
) -> None:
    run = loaded(shutil.copytree(folders[name], tmp_path / folders[name].name), seed)
    state = torch.load(folders[name] / f"weights-seed{seed}.pt", weights_only=True)
    own = run.network.state_dict()
    assert own.keys() == state.keys() and not run.network.training
    tensors = [key for key, value in state.items() if isinstance(value, torch.Tensor)]
    assert all(torch.equal(own[key], state[key]) for key in tensors)
    assert run.label_names == ("background", *run.classes) and run.classes == run.data.classes
    execute(run.config)  # its result is there, so nothing is trained


def test_a_frozen_position_embedding_is_that_of_the_run(
    folders: dict[str, Path], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    copied = shutil.copytree(folders["none"], tmp_path / "copied") / "config.yaml"
    frozen = copied.read_text().replace("freeze_pos_embed: false", "freeze_pos_embed: true")
    copied.write_text(frozen)
    assert not all(
        parameter.requires_grad for parameter in loaded(copied.parent).network.parameters()
    )
    assert not [warning for warning in recwarn if "random" in str(warning.message)]


def test_a_network_that_is_never_pretrained_is_loaded(tmp_path: Path) -> None:
    """T2T-ViT has no option for weights."""
    words = ["experiment=cls_digits_eamlp", "data=scene_crops", "data.num_train=10"]
    config = compose_config([*words, "data.num_val=5", f"paths.cache={tmp_path}", "logger=none"])
    state = untrained(config, ()).state_dict()
    torch.save(state, tmp_path / "weights-seed0.pt")
    OmegaConf.save(config, tmp_path / "config.yaml")
    found = load(tmp_path, on="cpu", tasks=("classification",)).network.state_dict()
    assert all(torch.equal(found[key], value) for key, value in state.items())


def test_numbers_of_a_loaded_network_are_those_of_its_run(folders: dict[str, Path]) -> None:
    run, count = loaded(folders["none"]), Confusion(6)
    for id in (run.data.val[0], run.data.val[3]):  # two, evenly spaced
        look = look_at(run.task.viewer(run.network), run.data, id)
        count.update(torch.from_numpy(look.mask).long(), run.data.mask(id))
    expected = execute(run.config)["seeds"]["0"]["val_seg_ms_miou"]
    assert count.miou() == pytest.approx(expected, abs=1e-9)
    run = loaded(folders["segmentation"])
    expected = execute(run.config)["seeds"]["1"]["val_seg_miou"]
    assert segments(run).split("val")["val_seg_miou"] == expected


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "a: !!python/object/apply:os.getcwd []", ""])
def test_a_file_that_is_no_config_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=r"config\.yaml: cannot be read") as refused:
        load(tmp_path)
    assert "\n" not in str(refused.value)


def _cut(folder: Path) -> None:
    weights = folder / "weights-seed0.pt"
    weights.write_bytes(weights.read_bytes()[:1000])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "seed": (lambda folder: None, "known seeds: 0"),
    "cut": (_cut, "weights-seed0.pt"),
    "code": (
        lambda folder: torch.save({"x": Path("/")}, folder / "weights-seed0.pt"),
        "weights-se",
    ),
    "shape": (
        lambda folder: torch.save({"a": torch.zeros(5)}, folder / "weights-seed0.pt"),
        "weights-seed0.pt",
    ),
    "gone": (lambda folder: (folder / "weights-seed0.pt").unlink(), "result.json"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_cannot_be_loaded_is_refused(
    name: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    damage, named = DAMAGES[name]
    folder = shutil.copytree(folders["none"], tmp_path / "copy")
    damage(folder)
    with pytest.raises(InputError, match=named):
        load(folder, 7 if name == "seed" else None, "cpu", ("wsss", "nodes"))


def test_another_task_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="task=wsss"):
        load(folders["segmentation"], tasks=("wsss",))


# Drawing


def test_predict_does_what_it_can(
    folders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    run = loaded(folders["centered"])
    known, other = run.data.val[:2]
    good, broken = Path(run.data.image_files[other]), tmp_path / "broken.jpg"
    broken.write_bytes(good.read_bytes()[:300])
    missing = tmp_path / "missing.jpg"
    words = [missing, broken, known, good, "--run", folders["centered"]]
    words += ["--compare", folders["none"], "--device", "cpu", "--out", tmp_path / "out"]
    assert here(["predict", *map(str, words)], monkeypatch) == 1
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 2 and str(missing) in errors[0] and str(broken) in errors[1]
    for id in (known, other):
        assert Image.open(tmp_path / "out" / f"{id}.png").width > 1000
        expected = look_at(run.task.viewer(run.network), run.data, id).mask
        assert np.array_equal(read_mask(tmp_path / "out" / f"{id}-mask.png"), expected)


def test_predict_draws_the_masks_of_segmentation_runs(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = loaded(folders["segmentation"]), str(folders["segmentation"])
    id = run.data.val[0]
    words = ["predict", id, "--run", folder, "--compare", folder, "--out", str(tmp_path)]
    assert here(words, monkeypatch) == 0
    expected = segments(run).predict(run.data.image(id).float() / 255).numpy()
    assert np.array_equal(read_mask(tmp_path / f"{id}-mask.png"), expected)
    assert Image.open(tmp_path / f"{id}.png").width > 700  # image, truth, two masks


@pytest.mark.parametrize(
    ("run", "words", "named"),
    [
        ("none", ["x.jpg", "--labels", "disk"], "--labels"),
        ("segmentation", ["x.jpg", "--labels", "disc"], "--labels"),
        ("none", ["cat.png", "--out", "."], "--out ."),
    ],
)
def test_predict_refuses_and_replaces_no_image(
    run: str,
    words: list[str],
    named: str,
    folders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cat.png").write_bytes(b"precious")
    assert here(["predict", *words, "--run", str(folders[run])], monkeypatch) == 2
    error = capsys.readouterr().err
    assert named in error and error.count("\n") == 1
    assert Path("cat.png").read_bytes() == b"precious"


def test_figure2(folders: dict[str, Path]) -> None:
    without, centered = (loaded(folders[name]) for name in ("none", "centered"))
    ids = distinct_classes(centered.data, 2)
    figure = figure2(without, centered, ids)
    networks = ("without centering", "γ = −1")
    maps = [f"{what}, {title}" for what in ("CAM", "mask") for title in networks]
    assert [text.get_text() for text in figure.texts] == ["image", "ground truth", *maps]
    assert len(figure.axes) == 12
    for id in ids:  # the mask has classes of the label only, if they are given
        mask = look_at(centered.task.viewer(centered.network, known=True), centered.data, id).mask
        assert set(np.unique(mask)) <= {0, *centered.data.present[id]}


def test_maps_of_a_segmentation_run(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--run", str(folders["segmentation"]), "--seed", "1"]
    stem = ["--stem", str(tmp_path / "four")]
    assert here(["figure", "hem_fig4", *words, *stem], monkeypatch) == 0
    assert Image.open(tmp_path / "four.png").width > 500


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ("fig2", "experiment=wsss_voc_subset aggregator=none"),
        ("hem_fig4", "experiment=seg_voc_subset aggregator=hem"),
    ],
)
def test_a_figure_names_the_command_that_is_missing(
    figure: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert here(["figure", figure], monkeypatch) == 2
    assert f"python train.py {words} 'seeds=[0]'" in capsys.readouterr().err
