"""The pipeline end to end on tiny scenes: stages, ablation, kill -9, several processes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from processes import train_by_two
from run_log import log_text
from safetensors.torch import save_file
from tiny_wsss import words

from oversmoothing import distributed
from oversmoothing.aggregators.centered import Centered
from oversmoothing.lab.backbones.pretrained import create
from oversmoothing.lab.launch import trained
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.store.weights import weights_path
from oversmoothing.lab.tasks.wsss.evaluator import Evaluator


def numbers(result: dict, seed: str = "0") -> dict[str, float]:
    return {k: v for k, v in result["seeds"][seed].items() if k.endswith("_miou")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wsss")


@pytest.fixture(scope="module")
def plain(folder: Path) -> dict:
    """Returns result and weights of an uninterrupted run of one process."""
    config = compose_config(words(folder / "plain"))
    result = execute(config)
    return {"result": result, "weights": weights(config)}


def weights(config) -> torch.Tensor:
    state = torch.load(weights_path(run_folder(config), 0), weights_only=True)
    tensors = [value for value in state.values() if isinstance(value, torch.Tensor)]
    return torch.cat([value.flatten() for value in tensors])


def test_every_stage_is_measured_and_says_how(plain: dict) -> None:
    result = plain["result"]["seeds"]["0"]
    stages = ["cam", "aux_cam", "pseudo", "seg", "seg_ms"]
    assert [f"val_{stage}_miou" for stage in stages] == list(numbers(plain["result"]))
    assert all(0 <= value <= 100 for value in numbers(plain["result"]).values())
    assert set(result["val_cam_iou"]) == {"background", *result["val_seg_iou"]} - {""}
    assert "3 images of scenes val" in result["conditions"]["val"]["seg_ms"]
    assert result["weights"] == "from scratch"
    for when in ("before", "after"):
        layers = result[f"layers_{when}"]
        assert len(layers["cosine"]) == len(layers["effective_rank"]) == 6


def test_losses_join_when_the_method_says(plain: dict, folder: Path) -> None:
    [path] = (folder / "plain").glob("wsss-*/s*/metrics.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    losses = [{k for k in line if k.startswith("loss_")} for line in lines]
    assert losses[0] == {"loss_cls", "loss_aux"}  # step index 1
    assert losses[-1] == {"loss_cls", "loss_aux", "loss_seg", "loss_reg"}


@pytest.mark.parametrize(
    "off, stages",
    [
        (["aux", "seg", "reg"], {"cam", "pseudo"}),
        (["seg", "reg"], {"cam", "aux_cam", "pseudo"}),
        (["reg"], {"cam", "aux_cam", "pseudo", "seg", "seg_ms"}),
    ],
)
def test_each_loss_can_be_switched_off(folder: Path, off: list[str], stages: set[str]) -> None:
    switches = [f"task.method.{loss}_weight=0" for loss in off]
    asked = words(folder / "off", *switches, "trainer.iterations=3", "trainer.log_every=1")
    config = compose_config(asked)
    result = execute(config)
    assert {key.split("_", 1)[1][:-5] for key in numbers(result)} == stages
    assert result["seeds"]["0"]["conditions"]["val"].keys() == stages
    lines = log_text(run_folder(config))
    assert not any(f"loss_{loss}" in lines for loss in off)


def test_evaluations_on_the_way_change_nothing(plain: dict, folder: Path) -> None:
    on_the_way = ["evaluation.every=2", "evaluation.backgrounds=[0.3,0.5]", "evaluation.common=1"]
    asked = words(folder / "on the way", *(f"task.{word}" for word in on_the_way))
    config = compose_config(asked)
    result = execute(config)
    assert numbers(result).items() >= numbers(plain["result"]).items()
    assert torch.equal(weights(config), plain["weights"])
    own = result["seeds"]["0"]
    assert [evaluation["step"] for evaluation in own["history"]] == [2, 4]
    assert numbers(result).keys() <= own["history"][0].keys()
    assert own["val_cam_curve"]["0.5"] == own["val_cam_miou"] <= own["val_cam_best_miou"]
    assert own["val_cam_common_miou"] == own["val_cam_miou"]  # every class has an image


def test_two_processes_do_what_one_does(plain: dict, folder: Path) -> None:
    train_by_two(*words(folder / "two"))
    config = compose_config(words(folder / "two"))
    torch.testing.assert_close(weights(config), plain["weights"], atol=2e-5, rtol=1e-3)
    found = numbers(json.loads((run_folder(config) / "result.json").read_text()))
    assert found == pytest.approx(numbers(plain["result"]), abs=1.0)


def test_a_process_without_images_has_every_stage_to_add(
    plain: dict, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would miss an exchange, and the others would wait for it."""
    run = trained.load(next((folder / "plain").glob("wsss-*")), on="cpu")
    task = run.task
    log = Recorder(folder / "idle", [0])
    evaluator = Evaluator(
        run.network, run.data, task.evaluation, torch.device("cpu"), log, task.method
    )
    monkeypatch.setattr(distributed, "world", lambda: 8)
    monkeypatch.setattr(distributed, "rank", lambda: 7)
    found = evaluator.split("val")
    assert [key for key in found if key.endswith("_miou")] == list(numbers(plain["result"]))


def test_given_the_classes_every_pixel_takes_the_best_of_them(plain: dict, folder: Path) -> None:
    run = trained.load(next((folder / "plain").glob("wsss-*")), on="cpu")
    evaluation, log = replace(run.task.evaluation, known=True), Recorder(folder / "known", [0])
    evaluator = Evaluator(
        run.network, run.data, evaluation, torch.device("cpu"), log, run.task.method
    )
    items, confused = [*evaluator.items(run.data.val, "")], 0
    found = evaluator._predict(items)
    for item, seg, known in zip(items, found["seg"], found["seg_known"]):
        allowed = torch.cat([torch.zeros(1), item["label"].nonzero()[:, 0] + 1])
        assert torch.isin(known, allowed).all()
        kept = torch.isin(seg, allowed)
        assert torch.equal(known[kept], seg[kept])
        confused += int((~kept).sum())
    assert confused


def test_parts_of_a_batch_do_what_the_whole_does(plain: dict, folder: Path) -> None:
    config = compose_config(words(folder / "parts", "trainer.accumulate=4"))
    execute(config)
    torch.testing.assert_close(weights(config), plain["weights"], atol=2e-5, rtol=1e-3)


def test_bf16_stays_near_fp32(plain: dict, folder: Path) -> None:
    config = compose_config(words(folder / "bf16", "trainer.precision=bf16"))
    execute(config)
    found = weights(config)
    assert not torch.equal(found, plain["weights"])
    torch.testing.assert_close(found, plain["weights"], atol=2e-2, rtol=0)


def test_seeds_are_trained_one_by_one_and_differ(folder: Path) -> None:
    one = ["trainer.iterations=1", "trainer.warmup=0"]
    config = compose_config(words(folder / "seeds", "seeds=[0,1]", *one))
    execute(config)
    first, second = (
        torch.load(weights_path(run_folder(config), s), weights_only=True) for s in (0, 1)
    )
    assert not torch.equal(first["classifier.weight"], second["classifier.weight"])


@pytest.mark.parametrize("trainer", ["toco_smoke", "emanet"])
def test_an_adaptation_stage_comes_first(folder: Path, trainer: str) -> None:
    weights = folder / "weights.safetensors"
    save_file(create("test_vit").state_dict(), weights)
    adapt = ["task.adaptation=2", "trainer.log_every=1", "trainer.warmup=1"]
    adapt += [f"trainer={trainer}", "trainer.batch_size=4", f"backbone.weights={weights}"]
    config = compose_config(words(folder / trainer, *adapt, "trainer.iterations=2"))
    execute(config)
    lines = log_text(run_folder(config)).splitlines()
    assert ["imitation" in line for line in lines] == [True, True, False, False]


def test_an_adaptation_is_part_of_the_warm_up_of_gamma(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, factors = folder / "tiny.safetensors", []
    save_file(create("test_vit").state_dict(), weights)
    warm = ["task.adaptation=2", "trainer.warmup=1", "trainer.iterations=3", "aggregator.warmup=4"]
    config = compose_config(words(folder / "warm", *warm, f"backbone.weights={weights}"))
    grow = Centered.advance
    monkeypatch.setattr(
        Centered, "advance", lambda self, step: factors.append(step / 4) or grow(self, step)
    )
    execute(config)
    assert [*dict.fromkeys(factors)] == [0, 0.25, 0.5, 0.75, 1]
