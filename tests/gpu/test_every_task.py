"""Every task on a device: as on the CPU, deterministic, resumed, in bf16, compiled."""

import functools
import json
from pathlib import Path

import pytest
import torch
from small_runs import RUNS, TRAINED, words

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.run import Recorder

LOOPED = ["wsss", "segmentation", "classification", "glue"]  # trained by TrainingLoop
EACH_LOOP = ["nodes", "nodes_pyg", "segmentation"]  # what a stop leaves, on the pretend device
CLOSE = 5e-4  # relative; steps of Adam enlarge differences of rounding
Losses = list[dict[str, float]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("devices")


@pytest.fixture(scope="module")
def run(folder: Path, request: pytest.FixtureRequest):
    """Runs a task's small run; returns its losses by step, and its result."""

    def ran(task: str, name: str, *more: str) -> tuple[Losses, dict]:
        if task == "glue":
            more = (*more, f"paths.data={request.getfixturevalue('data_root')}")
        config = compose_config(words(task, folder / name, "matmul=highest", *more))
        result = execute(config)["seeds"]["0"]
        logs = run_folder(config).glob("s*/metrics.jsonl")  # an evaluation has none
        lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        assert lines or task not in TRAINED
        chosen = [{k: v[0] for k, v in line.items() if "loss" in k} for line in lines]
        return chosen, result

    return ran


@pytest.fixture(scope="module")
def on_cpu(run):
    """Losses and result of a task on the CPU, computed once."""
    return functools.cache(lambda task: run(task, "cpu", "device=cpu"))


def same(ours: Losses, theirs: Losses, rel: float) -> None:
    assert len(ours) == len(theirs)
    for own, other in zip(ours, theirs):
        assert own == pytest.approx(other, rel=rel, abs=1e-6)


@pytest.mark.parametrize("task", RUNS)
def test_a_run_gives_the_numbers_of_the_cpu_and_is_deterministic(
    run, on_cpu, device: str, task: str
) -> None:
    losses, result = run(task, "device", f"device={device}", "deterministic=error")
    expected, numbers = on_cpu(task)
    same(losses, expected, CLOSE)
    assert result.keys() == numbers.keys()
    if not losses:
        assert leaves(result) == pytest.approx(leaves(numbers), rel=CLOSE, abs=1e-5)


def leaves(result: object) -> list[float]:
    """All numbers of a result, in order."""
    if isinstance(result, dict | list):
        parts = result.values() if isinstance(result, dict) else result
        return [number for part in parts for number in leaves(part)]
    return [result] if isinstance(result, float) else []


@pytest.mark.parametrize("task", TRAINED)
def test_a_stopped_run_continues_with_the_same_numbers(
    run, on_cpu, device: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "pretend" and task not in EACH_LOOP:
        pytest.skip("a checkpoint is on the CPU: on a device the loop decides, not the task")
    save = Recorder.save_checkpoint

    def stop(recorder: Recorder, state: dict) -> None:
        save(recorder, state)
        raise KeyboardInterrupt

    again = (f"device={device}", "checkpoint_seconds=0")
    monkeypatch.setattr(Recorder, "save_checkpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        run(task, "resumed", *again)
    monkeypatch.undo()
    same(run(task, "resumed", *again)[0], on_cpu(task)[0], CLOSE)


@pytest.mark.parametrize(
    ("option", "gap"), [("trainer.precision=bf16", 0.05), ("matmul=high", 5e-3)]
)
@pytest.mark.parametrize("task", LOOPED)
def test_lower_precision_is_near(
    run, on_cpu, device: str, task: str, option: str, gap: float
) -> None:
    if device == "pretend" and (option == "matmul=high" or task != "wsss"):
        pytest.skip("only CUDA has TF32; the loop, not the task, chooses bf16")
    losses, _ = run(task, option.split("=")[-1], f"device={device}", option)
    same(losses[:1], on_cpu(task)[0][:1], gap)


@pytest.mark.parametrize("backbone", ["gcnii", "jknet", "gprgnn", "dagnn", "graphcon", "g2"])
def test_a_graph_network_trains_as_on_the_cpu(run, device: str, backbone: str) -> None:
    rate = 0 if device == "cuda" else 0.6  # the pretend device draws the numbers of the CPU
    words = (f"backbone={backbone}", f"backbone.dropout={rate}", "aggregator=centered")
    words += ("aggregator@then=layernorm",)
    losses, _ = run("nodes", backbone, f"device={device}", *words)
    expected, _ = run("nodes", f"{backbone}_cpu", "device=cpu", *words)
    same(losses, expected, CLOSE)


@pytest.mark.parametrize("task", ["classification", "glue"])
def test_a_compiled_run_gives_the_same_losses(
    run, on_cpu, device: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "pretend" and task == "glue":
        pytest.skip("tests/backbones/test_compile.py compiles it")
    if device == "pretend" or task == "glue":  # generating code takes half a minute
        eager = functools.partial(torch.compile, backend="aot_eager")
        monkeypatch.setattr(torch, "compile", eager)
    losses, _ = run(task, "compiled", f"device={device}", "trainer.compile=true")
    torch._dynamo.reset()
    same(losses, on_cpu(task)[0], CLOSE)


def test_steps_replayed_from_a_cuda_graph_give_the_eager_losses(run, device: str) -> None:
    if device != "cuda":
        pytest.skip("a CUDA graph needs a GPU; tests/training/test_replay.py has a stand-in")
    words = (f"device={device}", "trainer.epochs=12", "trainer.eval_every=1")
    eager, expected = run("nodes", "eager", *words, "trainer.cuda_graph=false")
    replayed, result = run("nodes", "replayed", *words)
    same(replayed, eager, 1e-5)
    assert result["test_accuracy"] == pytest.approx(expected["test_accuracy"], abs=1.0)
