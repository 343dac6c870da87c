"""Commands and results with invalid values are refused with one line, before any work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.errors import InputError, complain
from oversmoothing.lab.launch.command import attempt, command, configs, unfinished
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.results import summary
from oversmoothing.lab.tasks.wsss.settings import Evaluation, Method
from oversmoothing.lab.training.recipes import AdamWCosine, AdamWLinear, AdamWPoly

ROOT = Path(__file__).parents[2]
SMALL = ["data.num_nodes=400", "trainer.epochs=1", "seeds=[0]", "logger=none", "device=cpu"]
WSSS = ["experiment=wsss_scenes", "backbone.name=test_vit", "task.evaluation.crf=null"]
WSSS += ["logger=none", "device=cpu"]
DIGITS = ["task=classification", "data=digits", "trainer=deit_short", "task.augment.size=32"]
DIGITS += ["task.evaluation.size=32", "trainer.iterations=2", "trainer.warmup=0"]
TWO_SEEDS = ["-m", "seeds=[0],[1]"]

REFUSED = {
    "seeds: expected a list of different whole numbers": ["seeds=[99999999999999999999999]"],
    "threads: expected 1 to": ["threads=100000000"],
    "with logger=none, leave out logger.mode": ["logger=none", "logger.mode=online"],
    "cannot be read": [f"trainer.lr={'9' * 5000}"],
    "trainer._target_: builtins.dict belongs to Python": ["trainer._target_=builtins.dict"],
    "data scenes: task nodes needs a graph": ["data=scenes", *TWO_SEEDS],
    "trainer: this task cannot use AdamWPoly": ["data.num_nodes=400", "trainer=toco"],
    "trainer: this task cannot use FullBatchAdam": [*WSSS, "trainer=adam"],
    "backbone: this task cannot use BERT; choose backbone=deit_ti": [
        *DIGITS,
        "backbone=bert_small",
        "backbone.depth=1",
        "backbone.dim=8",
        "backbone.heads=2",
    ],
    "task.gammas: expected at most 100,000": ["experiment=prop1", "task.gammas=0:1:1e-12"],
}


@pytest.mark.parametrize("line", REFUSED)
def test_values_out_of_range_are_refused_in_one_line(line: str, tmp_path: Path) -> None:
    words = REFUSED[line]
    small = SMALL if words[0].startswith(("seeds", "threads", "trainer.")) else []
    with pytest.raises(InputError) as refused:
        command([*small, *words, f"paths.outputs={tmp_path}"])
    assert line in str(refused.value)
    assert all("\n" not in said for said in refused.value.lines)


PARTS = {
    "trainer.betas: expected two numbers": lambda: AdamWPoly(betas=[0.9]),
    "trainer.betas: expected two numbers, 0 to": lambda: AdamWCosine(betas=[1, 2]),
    "trainer.eps: expected 0 or more": lambda: AdamWLinear(eps=-1),
    "task.method.sigma_rgb: expected above 0": lambda: Method(sigma_rgb=0),
    "task.evaluation.workers: expected 0 or more": lambda: Evaluation(workers=-1),
    "task.evaluation.splits: expected train": lambda: Evaluation(splits=[]),
    "task.evaluation.ms_splits: expected some of": lambda: Evaluation(ms_splits=["train"]),
    "task.evaluation.background: expected a prob": lambda: Evaluation(background=2),
    "task.evaluation.ms_scales: expected scales": lambda: Evaluation(ms_scales=[1e9]),
    "task.method.cam_scales: expected scales": lambda: Method(cam_scales=[]),
    "aggregator.eps: expected 0 or more, got -1": lambda: PairNorm(eps=-1),
    "aggregator.eps: expected a finite number": lambda: LayerNorm(4, eps=float("nan")),
}


@pytest.mark.parametrize("line", PARTS)
def test_options_out_of_range_are_refused_by_their_part(line: str) -> None:
    with pytest.raises(InputError, match=line):
        PARTS[line]()


def test_a_config_folder_with_a_binary_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/zz.yaml").write_bytes(b"\xcd\x00\xff")
    with pytest.raises(InputError, match="data=zz .*one of these YAML files is no text"):
        command(["--config-dir", str(tmp_path), "data=zz"])


def test_long_lines_are_shortened(capsys: pytest.CaptureFixture) -> None:
    complain("x" * 5000)
    assert len(capsys.readouterr().err) < 2100


CHANGES = {
    "seeds.0: expected the results of a seed": lambda r: r["seeds"].update({"0": None}),
    "seeds.x: expected the results of a seed": lambda r: r["seeds"].update({"x": {}}),
    "name: expected nodes-csbm-": lambda r: r.pop("name"),
    "id: expected ": lambda r: r.update(id="0123456789"),
    "seconds: expected a number": lambda r: r.update(seconds="1"),
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple:
    [config] = configs([*SMALL, f"paths.outputs={tmp_path_factory.mktemp('outputs')}"])
    return config, execute(config)


@pytest.mark.parametrize("line", CHANGES)
def test_a_result_edited_by_hand_is_refused(
    line: str, finished_run: tuple, capsys: pytest.CaptureFixture
) -> None:
    config, result = finished_run
    changed = json.loads(json.dumps(result))
    CHANGES[line](changed)
    (run_folder(config) / "result.json").write_text(json.dumps(changed))
    assert line in (attempt(config) or "")
    assert unfinished([config]) == 1  # so that the command exits with 1
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(InputError, match="result.json"):
        command([*SMALL, f"paths.outputs={config.paths.outputs}"])


def test_a_folder_in_place_of_a_result_is_refused(tmp_path: Path) -> None:
    [config] = configs([*SMALL, f"paths.outputs={tmp_path}"])
    (run_folder(config) / "result.json").mkdir(parents=True)
    assert "result.json: cannot be read" in (attempt(config) or "")


def test_numbers_that_are_not_finite_are_summarised() -> None:
    seeds = {"0": {"loss": float("nan")}, "1": {"loss": float("inf")}, "2": {"loss": 1.0}}
    assert summary({"name": "run", "seeds": seeds, "seconds": 1}, False).startswith("run: loss nan")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end otherwise there")
@pytest.mark.parametrize("words", [["--help"], ["--cfg", "job"]])
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, str(ROOT / "train.py"), *words], **pipes)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() != 0
