"""Complete runs on the embedded graph: skipped and extended."""

import locale
from pathlib import Path

import pytest
import torch
from run_log import log_lines
from small_runs import words

from oversmoothing.errors import InputError
from oversmoothing.lab.launch import execute as module
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start, execute, finished, known_result, run_folder
from oversmoothing.lab.store.results import write_result
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes import FullBatchLoop

SMALL = ["data.num_nodes=400", "trainer.epochs=40", "trainer.eval_every=5", "logger=none"]


def config(outputs: Path, *overrides: str):
    return compose_config([*SMALL, f"paths.outputs={outputs}", "threads=1", *overrides])


def test_a_finished_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = config(tmp_path)
    first = execute(asked)
    assert finished(asked)
    monkeypatch.setattr(module, "Start", lambda *_: pytest.fail("ran again"))
    monkeypatch.setattr(module, "locked", lambda *_: pytest.fail("written to, as in no archive"))
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


def test_more_seeds_train_only_the_new_ones(tmp_path: Path) -> None:
    few = execute(config(tmp_path, "seeds=[0,2]"))
    more = execute(config(tmp_path, "seeds=[0,1,2,3]"))
    assert list(more["seeds"]) == ["0", "1", "2", "3"] and more["id"] == few["id"]
    alone = execute(config(tmp_path / "alone", "seeds=[0,1,2,3]"))
    for seed, result in alone["seeds"].items():  # sums over nodes are rounded by batch of seeds
        assert more["seeds"][seed] == pytest.approx(result, rel=1e-6)
    folder = run_folder(config(tmp_path))
    assert [line["seeds"] for line in log_lines(folder)] == [[0, 2]] * 8 + [[1, 3]] * 8


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


def test_seeds_of_other_data_are_not_added(tmp_path: Path) -> None:
    few = execute(config(tmp_path, "seeds=[0]"))
    few["envs"]["0"]["data"] = few["env"]["data"] = "another"
    more = config(tmp_path, "seeds=[0,1]")
    write_result(run_folder(more), few)
    with pytest.raises(InputError, match=r"^data: seed 0 in .* was run on other data .*remove"):
        execute(more)
    assert known_result(more) == few


def test_a_checkpoint_of_other_data_is_kept_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it is removed."""

    def killed(loop: FullBatchLoop, losses: object) -> None:
        loop._save()
        raise KeyboardInterrupt

    asked = config(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FullBatchLoop, "_record", killed)
        execute(asked)
    [file] = run_folder(asked).glob("*/checkpoint.pt")
    before = torch.load(file)
    torch.save(before | {"data": "another"}, file)
    with pytest.raises(InputError, match=r"checkpoint\.pt: made on other data .*remove the file"):
        execute(asked)
    assert file.exists()
    file.unlink()
    execute(asked)
    assert finished(asked) and before["data"]


def test_a_crash_leaves_its_traceback_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the locale has no γ, and if a file name is not valid text."""

    def fit(_: object) -> None:
        raise ArithmeticError("γ of caf\udce9")

    asked, before = config(tmp_path), locale.setlocale(locale.LC_CTYPE)
    with monkeypatch.context() as patch:
        patch.setattr("oversmoothing.lab.tasks.nodes.FullBatchLoop.fit", fit)
        locale.setlocale(locale.LC_CTYPE, "C")
        with pytest.raises(ArithmeticError, match="γ of caf"):
            execute(asked)
        locale.setlocale(locale.LC_CTYPE, before)
    assert "ArithmeticError: γ of caf" in (run_folder(asked) / "error.txt").read_text("utf-8")
    execute(asked)
    assert finished(asked) and not (run_folder(asked) / "error.txt").exists()


FOREIGN = {"weight": torch.zeros(2)}
STATE = {
    **{"network": FOREIGN, "model": FOREIGN, "optimizer": {}, "curves": {}, "chosen": []},
    **{"step": 1, "epoch": 1, "phase": "training", "device": "cpu"},
}


@pytest.mark.parametrize("task", ["nodes", "nodes_pyg", "segmentation", "rank"])
def test_a_checkpoint_of_another_network_is_named(task: str, tmp_path: Path) -> None:
    """An earlier version may have left it."""
    asked = compose_config(words(task, tmp_path / "outputs"))
    Recorder(run_folder(asked), list(asked.seeds)).save_checkpoint(STATE)
    with pytest.raises(InputError, match=r"checkpoint\.pt: does not fit this run .*; remove it"):
        execute(asked)


def test_best_val_is_never_below_last_on_validation(tmp_path: Path) -> None:
    last = execute(config(tmp_path))
    best = execute(config(tmp_path, "trainer.selection=best-val"))
    for seed, result in last["seeds"].items():
        assert best["seeds"][seed]["val_accuracy"] >= result["val_accuracy"]
        assert best["seeds"][seed]["epoch"] <= 40
