"""The pipeline end to end on tiny scenes: stages, ablation, kill -9, several processes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from processes import by_two, perform, without_error
from run_log import log_text
from safetensors.torch import save_file
from small_runs import words as small

from oversmoothing import distributed
from oversmoothing.aggregators.centered import Centered
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.pretrained import create
from oversmoothing.lab.launch import trained
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start, execute, run_folder
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.store.weights import weights_path
from oversmoothing.lab.tasks.base import Job
from oversmoothing.lab.tasks.wsss.evaluator import Evaluator

OWN = ["data.num_train=12", "data.num_val=3", "trainer.iterations=6", "task.method.start=2"]


def words(outputs: Path, *overrides: str) -> list[str]:
    return small("wsss", outputs, *OWN, "device=cpu", *overrides)


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
    without_error(by_two(perform, ["train.py", *words(folder / "two")]))
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


def test_bf16_stays_near_fp32(plain: dict, folder: Path) -> None:
    config = compose_config(words(folder / "bf16", "trainer.precision=bf16"))
    execute(config)
    found = weights(config)
    assert not torch.equal(found, plain["weights"])
    torch.testing.assert_close(found, plain["weights"], atol=2e-2, rtol=0)


def test_an_adaptation_comes_first_and_is_part_of_the_warm_up_of_gamma(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, factors = folder / "tiny.safetensors", []
    save_file(create("test_vit").state_dict(), weights)
    warm = [
        "task.adaptation=2",
        "trainer.warmup=1",
        "trainer.iterations=3",
        "aggregator.warmup=4",
        "trainer.log_every=1",
    ]
    config = compose_config(words(folder / "warm", *warm, f"backbone.weights={weights}"))
    grow = Centered.advance
    monkeypatch.setattr(
        Centered, "advance", lambda self, step: factors.append(step / 4) or grow(self, step)
    )
    execute(config)
    assert [*dict.fromkeys(factors)] == [0, 0.25, 0.5, 0.75, 1]
    lines = log_text(run_folder(config)).splitlines()
    assert ["imitation" in line for line in lines] == [True] * 2 + [False] * 3


@pytest.mark.parametrize(
    ("part", "options"),
    [("train", "splits=[val,train]"), ("val", "splits=[val,train]"), ("val", "splits=[train]")],
)
def test_missing_masks_and_labels_are_found_before_the_training(
    tmp_path: Path, part: str, options: str
) -> None:
    own = (f"task.evaluation.{option}" for option in (options, "ms_splits=[]", "every=1"))
    start = Start(compose_config(words(tmp_path / "out", *own)))
    for lacking, said in (("mask_files", "have no mask"), ("present", "no image-level label")):
        known = getattr(start.parts.data, lacking)
        left = {id: own for id, own in known.items() if id != getattr(start.parts.data, part)[0]}
        parts = replace(start.parts, data=replace(start.parts.data, **{lacking: left}))
        job = Job(parts, [0], Recorder(tmp_path, [0]), start.device)
        network, task = start.network([0]), start.task
        with pytest.raises(InputError, match=said):
            task.run(network, job)
        evaluator = Evaluator(
            network, parts.data, task.evaluation, job.device, job.recorder, task.method
        )
        with pytest.raises(InputError, match=said):
            evaluator.split(part)
    assert not log_text(tmp_path)


def test_a_decoder_that_is_not_trained_is_one_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"task\.method\.start=6: .* only 6 iterations"):
        configs(words(tmp_path / "out", "task.method.start=6"))
