"""Complete runs on the embedded graph: skipped, extended, resumed after kill -9, in parallel."""

import json
import locale
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from oversmoothing.errors import InputError
from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.launch import execute as module
from oversmoothing.lab.launch.execute import execute, finished, known_result, run_folder
from oversmoothing.lab.launch.start import Start
from oversmoothing.lab.store.recorder import Recorder, write_result

ROOT = Path(__file__).parents[2]
SMALL = ["data.num_nodes=400", "trainer.epochs=40", "trainer.eval_every=5", "logger=none"]


def config(outputs: Path, *overrides: str):
    return compose_config([*SMALL, f"paths.outputs={outputs}", "threads=1", *overrides])


def train(outputs: Path, *overrides: str) -> subprocess.Popen:
    words = [sys.executable, "train.py", *SMALL, f"paths.outputs={outputs}", "threads=1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    flags = [word for word in overrides if word.startswith("-")]  # Hydra wants them first
    words[2:2] = flags
    words += [word for word in overrides if word not in flags]
    return subprocess.Popen(words, cwd=ROOT, **pipes)


def numbers(result: dict) -> dict:
    return result["seeds"]


def test_a_finished_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = config(tmp_path)
    first = execute(asked)
    assert finished(asked)
    monkeypatch.setattr(module, "Start", lambda *_: pytest.fail("ran again"))
    assert execute(asked) == first


@pytest.mark.parametrize(
    "asked, on_cpu", [("high", "highest"), ("highest", "highest"), ("medium", "medium")]
)
def test_float32_products_are_exact_on_a_cpu_by_default(
    asked: str, on_cpu: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", seen.append)
    Start(config(tmp_path, f"matmul={asked}", "device=cpu"))
    assert seen == [on_cpu]


def test_checkpoints_of_finished_seeds_are_removed(tmp_path: Path) -> None:
    """The kill came after the result and before the checkpoints were removed."""
    asked = config(tmp_path, "seeds=[0]")
    execute(asked)
    run = Recorder(run_folder(asked), [0])
    run.save_checkpoint({"epoch": 40})
    execute(asked)
    assert not (run.folder / "checkpoint.pt").exists()
    Recorder(run.folder, [0, 1]).save_checkpoint({"epoch": 1})  # of a training that continues
    execute(asked)
    assert (run.folder / "checkpoint.pt").exists()


def test_more_seeds_train_only_the_new_ones(tmp_path: Path) -> None:
    few = execute(config(tmp_path, "seeds=[0,2]"))
    more = execute(config(tmp_path, "seeds=[0,1,2,3]"))
    assert list(more["seeds"]) == ["0", "1", "2", "3"] and more["id"] == few["id"]
    alone = execute(config(tmp_path / "alone", "seeds=[0,1,2,3]"))
    for seed, result in numbers(alone).items():  # sums over nodes are rounded by batch of seeds
        assert more["seeds"][seed] == pytest.approx(result, rel=1e-6)
    folder = run_folder(config(tmp_path))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["seeds"] for line in lines] == [[0, 2]] * 8 + [[1, 3]] * 8


def test_every_seed_keeps_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = execute(config(tmp_path, "seeds=[0]"))
    on_gpu = {**cpu["env"], "device": "H200"}
    monkeypatch.setattr(module, "environment", lambda _: on_gpu)
    both = execute(config(tmp_path, "seeds=[0,1]"))
    assert [both["envs"][seed]["device"] for seed in "01"] == ["cpu", "H200"]
    assert both["env"] == {**cpu["env"], "device": "cpu / H200"}


def test_a_result_of_other_code_of_the_user_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own_scaled.py"
    file.write_text(
        "from oversmoothing.aggregators.base import After\n\n\n"
        "class Own(After):\n    def forward(self, x, context):\n        return 2 * x\n"
    )
    own = ["+aggregator._partial_=true", "aggregator._target_=own_scaled.Own"]
    before = execute(config(tmp_path / "runs", *own))
    assert execute(config(tmp_path / "runs", *own)) == before and not recwarn.list
    file.write_text(file.read_text().replace("2 * x", "3 * x"))
    with pytest.warns(UserWarning, match="own code has changed since this result; remove the"):
        assert execute(config(tmp_path / "runs", *own)) == before
    assert "code" not in execute(config(tmp_path / "plain"))["env"]


@pytest.mark.parametrize("earlier", [False, True])
def test_seeds_of_other_data_are_not_added(tmp_path: Path, earlier: bool) -> None:
    few = execute(config(tmp_path, "seeds=[0]"))
    few["envs"]["0"]["data"] = few["env"]["data"] = "another"
    if earlier:  # one environment for all seeds
        del few["envs"]
    more = config(tmp_path, "seeds=[0,1]")
    write_result(run_folder(more), few)
    with pytest.raises(InputError, match=r"^data: seed 0 in .* was run on other data .*remove"):
        execute(more)
    assert known_result(more) == few


STACKS = [("none", "none"), ("centered", "layernorm"), ("contranorm", "none")]


@pytest.mark.parametrize("stack", STACKS)
def test_a_seed_gives_the_same_numbers_alone_and_in_company(tmp_path: Path, stack: tuple) -> None:
    names = [f"aggregator={stack[0]}", f"aggregator@then={stack[1]}", "backbone.depth=4"]
    together = execute(config(tmp_path / "together", "seeds=[3,1,4]", *names))
    for seed in (3, 1, 4):
        alone = execute(config(tmp_path / str(seed), f"seeds=[{seed}]", *names))
        ours, single = together["seeds"][str(seed)], alone["seeds"][str(seed)]
        assert ours["test_accuracy"] == single["test_accuracy"]
        assert ours["train_loss"] == pytest.approx(single["train_loss"], rel=1e-4)


@pytest.mark.parametrize("moment", [0.3, 0.8])
def test_kill_and_resume_is_bit_equal(tmp_path: Path, moment: float) -> None:
    """kill -9 in mid-training, the same command again: the numbers of an undisturbed run."""
    long = ["trainer.epochs=400", "aggregator=centered", "aggregator@then=layernorm"]
    asked = [*long, "seeds=[0,1]", "backbone.depth=4"]
    undisturbed = execute(config(tmp_path / "a", *asked))
    process = train(tmp_path / "b", *asked, "checkpoint_seconds=0")
    disturbed = config(tmp_path / "b", *asked)
    wait_for_epoch(run_folder(disturbed) / "metrics.jsonl", int(400 * moment), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not finished(disturbed) and (run_folder(disturbed) / "checkpoint.pt").exists()
    resumed = execute(disturbed)
    assert numbers(resumed) == numbers(undisturbed)
    folders = [run_folder(c) for c in (config(tmp_path / "a", *asked), disturbed)]
    first, second = ((folder / "metrics.jsonl").read_text() for folder in folders)
    assert first == second
    assert not (run_folder(disturbed) / "checkpoint.pt").exists()


def wait_for_epoch(log: Path, epoch: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if log.exists() and f'"epoch": {epoch // 5 * 5}' in log.read_text("utf-8"):
            return
        time.sleep(0.005)
    raise AssertionError(f"never reached epoch {epoch}: {process.communicate()}")


def test_two_sweeps_side_by_side_lose_and_repeat_nothing(tmp_path: Path) -> None:
    sweep = ["-m", "backbone.depth=1,2,3", "seeds=[0]"]
    processes = [train(tmp_path, *sweep) for _ in range(2)]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    for depth in (1, 2, 3):
        folder = run_folder(config(tmp_path, f"backbone.depth={depth}", "seeds=[0]"))
        assert len((folder / "metrics.jsonl").read_text().splitlines()) == 8, "ran twice"
        assert "0" in json.loads((folder / "result.json").read_text())["seeds"]


def test_a_crash_leaves_its_traceback_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the locale has no γ, and if a file name is not valid text."""

    def fit(_: object) -> None:
        raise ArithmeticError("γ of caf\udce9")

    asked, before = config(tmp_path), locale.setlocale(locale.LC_CTYPE)
    with monkeypatch.context() as patch:
        patch.setattr("oversmoothing.lab.tasks.nodes.loop.FullBatchLoop.fit", fit)
        locale.setlocale(locale.LC_CTYPE, "C")
        with pytest.raises(ArithmeticError, match="γ of caf"):
            execute(asked)
        locale.setlocale(locale.LC_CTYPE, before)
    assert "ArithmeticError: γ of caf" in (run_folder(asked) / "error.txt").read_text("utf-8")
    execute(asked)
    assert finished(asked) and not (run_folder(asked) / "error.txt").exists()


def test_a_diverged_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"loss is not finite at epoch .*lower trainer\.lr"):
        execute(config(tmp_path, "trainer.lr=1e30", "backbone.depth=4"))


def test_layer_metrics_hold_a_value_a_layer(tmp_path: Path) -> None:
    result = execute(config(tmp_path, "task.layer_metrics=true", "backbone.depth=3", "seeds=[0]"))
    layers = result["seeds"]["0"]["layers"]
    assert set(layers) >= {"effective_rank", "mean_cosine", "dirichlet_energy", "mad"}
    assert all(len(values) == 3 for values in layers.values())


def test_best_val_is_never_below_last_on_validation(tmp_path: Path) -> None:
    last = execute(config(tmp_path))
    best = execute(config(tmp_path, "trainer.selection=best-val"))
    for seed, result in last["seeds"].items():
        assert best["seeds"][seed]["val_accuracy"] >= result["val_accuracy"]
        assert best["seeds"][seed]["epoch"] <= 40
