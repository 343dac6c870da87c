"""`oversmoothing evaluate` on tiny trained runs: other settings, mistakes."""

import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
import voc_folder

from oversmoothing.errors import Problems
from oversmoothing.lab.launch import evaluate as evaluate_command
from oversmoothing.lab.launch import trained
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.evaluate import configured
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.results import read_result

ROOT = Path(__file__).parents[3]
TINY = "experiment=wsss_voc trainer=toco_smoke trainer.iterations=2 trainer.warmup=1 logger=none"
TINY += " backbone.name=test_vit backbone.weights=none task.augment.crop=32 task.method.start=1"
TINY += " task.evaluation.splits=[val] task.evaluation.size=32 task.evaluation.ms_scales=[1.0]"
TINY += " task.evaluation.crf=null task.evaluation.workers=0 seeds=[0,1] threads=1 device=cpu"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds trained on made-up VOC."""
    root = tmp_path_factory.mktemp("voc")
    voc_folder.make(root, num_val=3)
    paths = [f"paths.data={root}", f"paths.outputs={root}/out", f"paths.cache={root}/cache"]
    config = compose_config([*TINY.split(), *paths])
    execute(config)
    return run_folder(config)


def evaluate(run: Path, *words: object) -> SimpleNamespace:
    """The script in this process: starting Python and torch takes seconds."""
    argv = ["evaluate.py", "--run", run, "--device", "cpu", *words]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "argv", list(map(str, argv)))
        with redirect_stderr(io.StringIO()) as err, pytest.raises(SystemExit) as ended:
            run_script(evaluate_command.main)
    return SimpleNamespace(
        returncode=ended.value.code, stdout=out.getvalue(), stderr=err.getvalue()
    )


def numbers(results: dict, split: str = "val") -> dict[str, float]:
    return {k: v for k, v in results.items() if k.startswith(split) and k.endswith("_miou")}


def test_the_runs_own_settings_give_its_numbers_and_others_their_own(run: Path) -> None:
    done = evaluate(run)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.split()[-1])
    own = json.loads(path.read_text("utf-8"))
    result = read_result(run)["seeds"]
    assert list(own["seeds"]) == ["0", "1"]
    for seed in "01":
        assert numbers(own["seeds"][seed]) == pytest.approx(numbers(result[seed]), nan_ok=True)
        assert own["seeds"][seed]["val_seg_iou"].keys() == result[seed]["val_seg_iou"].keys()
        assert own["seeds"][seed]["conditions"] == result[seed]["conditions"]
    before = path.stat().st_mtime_ns
    again = evaluate(run, "--seed", 0, 1, "evaluation.workers=1")
    assert again.stdout == done.stdout
    assert path.stat().st_mtime_ns == before  # nothing was done again
    retrained = shutil.copytree(run, run.parent / f"retrained-{run.name}")
    (retrained / "weights-seed0.pt").write_bytes((run / "weights-seed1.pt").read_bytes())
    evaluate(retrained)
    anew = json.loads((retrained / path.name).read_text())["seeds"]
    assert numbers(anew["0"]) == pytest.approx(numbers(own["seeds"]["1"]), nan_ok=True)
    words = ["evaluation.ms_scales=[0.5,1]", "evaluation.limit=2", "task.evaluation.size=64",
             "evaluation.boundary=true", "evaluation.known=true"]  # fmt: skip
    other = evaluate(run, "--seed", 1, "--split", "train", *words, "evaluation.crf={iterations: 1}")
    assert other.returncode == 0, other.stderr
    stages = [line.split()[0] for line in other.stdout.split("\n\n")[0].splitlines()]
    squashed = ["cam", "aux_cam", "pseudo", "seg", "seg_known"]
    bounded = ["cam_boundary", "pseudo_boundary", "seg_boundary"]
    assert stages == ["stage", *squashed, "seg_ms", "seg_crf", *bounded]
    assert "2 images of voc train, own size, scales 0.5, 1 with flips" in other.stdout
    assert "iterations=1, pos_w=1.0" in other.stdout
    assert Path(other.stdout.split()[-1]) != path


def test_mistakes_are_said_in_one_line(run: Path, tmp_path: Path) -> None:
    def refused(message: str, run: Path, *words: object) -> None:
        done = evaluate(run, *words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert done.stderr.startswith("error: ") and message in done.stderr

    refused("no such run; expected a run's folder", tmp_path / "nothing")
    refused("task.evaluation.size: expected a multiple of the patch", run, "evaluation.size=40")


@pytest.mark.parametrize(
    "word, message",
    [
        ("evaluation.sise=32", "cannot be set here; did you mean 'evaluation.size'?"),
        ("evaluation.crf.iteratons=3", "did you mean 'evaluation.crf.iterations'?"),
        ("method.high=0.5", "method.high: cannot be set here"),
        ("evaluation.limit=many", "evaluation.limit: expected a whole number or null"),
        ("evaluation.crf=on", "evaluation.crf: expected"),
    ],
)
def test_wrong_settings(run: Path, word: str, message: str) -> None:
    config = trained.load(run, 0, "cpu").config
    before = config.copy()
    with pytest.raises(Problems) as refused:
        configured(config, [word])
    assert message in refused.value.lines[0] and len(refused.value.lines) == 1
    assert config == before


def test_a_folder_with_an_equals_sign_is_no_override() -> None:
    options = evaluate_command._options
    given, words = options(["--run", "outputs/gamma=0.5/x", "evaluation.limit=2", "--seed", "0"])
    assert given.run == "outputs/gamma=0.5/x" and words == ["evaluation.limit=2"]


def test_a_run_that_adapted_pretrained_weights_can_be_evaluated(run: Path) -> None:
    """Its network is built without them, since those of the run are loaded."""
    loaded = trained.load(run)
    loaded.config.task.adaptation = 2
    assert evaluate_command.checked(loaded.config, loaded.network).adaptation == 2
