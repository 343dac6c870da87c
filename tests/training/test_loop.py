"""The training loop: schedule, parts of a batch, losses that blow up, memory that ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from listening import Listening
from run_log import log_text
from torch import Tensor, nn

from oversmoothing.aggregators.centered import Centered
from oversmoothing.errors import InputError
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.training.loop import BaseObjective, TrainingLoop, out_of_memory
from oversmoothing.lab.training.recipes import AdamWPoly


class Tiny(nn.Module):
    rate = 0.0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))
        self.dropout = nn.Dropout(self.rate)
        self.gamma = Centered(-1.0, warmup=10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.dropout(x.flatten(1)))[:, 0]

    def parameter_groups(self, lr: float, head_factor: float) -> list[dict]:
        first, last = self.layers[0].parameters(), self.layers[2].parameters()
        return [{"params": list(first), "lr": lr}, {"params": list(last), "lr": lr * head_factor}]


class Squares(BaseObjective):
    def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        error = model(part["image"]) - part["label"]
        return {"square": error.square().sum() / part["batch_size"]}


class Bad(Squares):
    """Has a loss that is not finite at one step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
        bad = torch.tensor(float("nan") if step == self.step else 0.0)
        return super().losses(model, part, step) | {"bad": bad}


def loader(batch_size: int, iterations: int, start: int, rank: int, world: int) -> Iterator[dict]:
    for i in range(start, iterations):
        generator = torch.Generator().manual_seed(i)
        image = torch.rand(batch_size, 3, 2, 2, generator=generator)
        yield {"image": image, "label": image.mean(dim=(1, 2, 3)), "name": list("abcdefgh")}


RECIPE = {"iterations": 12, "batch_size": 8, "warmup": 3, "lr": 1e-2, "workers": 0}


def loop(run: Recorder, objective: Any = None, **changes: Any) -> TrainingLoop:
    own = (Tiny(), objective or Squares(), loader, AdamWPoly(**RECIPE), run, torch.device("cpu"))
    return TrainingLoop(*own, **changes)


def train(folder: Path, stop: int | None = None, **changes: Any) -> TrainingLoop:
    trainer = AdamWPoly(**{**RECIPE, **changes})
    run = Recorder(folder, [0], checkpoint_seconds=0)
    training = TrainingLoop(Tiny(), Squares(), loader, trainer, run, torch.device("cpu"))
    if stop is not None:

        def until(**asked: Any) -> Iterator[dict]:
            yield from loader(**{**asked, "iterations": stop})

        training.loader = until
    training.fit()
    return training


def weights(training: TrainingLoop) -> Tensor:
    return torch.cat([p.detach().flatten() for p in training.network.parameters()])


def test_a_stopped_training_goes_on_bit_equally(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")
    train(tmp_path / "cut", stop=5)
    resumed = train(tmp_path / "cut")
    assert torch.equal(weights(resumed), weights(whole)) and resumed.step == 12
    assert resumed.network.gamma.progress == whole.network.gamma.progress == 1.0


def test_parts_of_a_batch_give_the_same_step(tmp_path: Path) -> None:
    whole, parts = train(tmp_path / "1"), train(tmp_path / "4", accumulate=4)
    torch.testing.assert_close(weights(parts), weights(whole), atol=1e-5, rtol=1e-4)


def test_a_loss_that_is_not_finite_names_its_images(tmp_path: Path) -> None:
    run = Recorder(tmp_path, [0], checkpoint_seconds=0)
    training = loop(run, Bad(3))
    with pytest.raises(InputError, match=r"iteration 3 \(square .*bad nan\) on examples a, b, c"):
        training.fit()
    assert training.step == 3 and weights(training).isfinite().all()
    assert run.load_checkpoint()["step"] == 3, "what was computed is kept"


def test_the_last_step_may_not_leave_weights_that_are_not_finite(tmp_path: Path) -> None:
    """Its loss is computed before it, so no loss shows them."""

    class Root(Squares):  # an infinite gradient at a loss of 0
        def losses(self, model: nn.Module, part: dict[str, Any], step: int) -> dict[str, Tensor]:
            zero = model(part["image"]).sum() * 0
            found = super().losses(model, part, step)
            return found | {"root": zero.sqrt()} if step == 11 else found

    run = Recorder(tmp_path, [0], checkpoint_seconds=0)
    with pytest.raises(InputError, match="iteration 12"):
        loop(run, Root()).fit()
    assert run.load_checkpoint()["step"] == 11


def test_a_gpu_is_asked_before_it_logs_and_still_names_the_step(tmp_path: Path) -> None:
    class Late(TrainingLoop):
        def _note(self, found: list[dict[str, Tensor]], batch: dict) -> None:
            self.unchecked += [(self.step, losses, batch["name"]) for losses in found]

    run, recipe = Recorder(tmp_path, [0]), AdamWPoly(**RECIPE, log_every=5)
    training = Late(Tiny(), Bad(6), loader, recipe, run, torch.device("cpu"))
    with pytest.raises(InputError, match=r"iteration 6 \(square .*bad nan\) on examples a, b, c"):
        training.fit()
    assert training.step == 10, "found at the next log line"
    assert len(log_text(tmp_path).splitlines()) == 1, "nothing bad is logged"
    assert run.load_checkpoint() is None


def test_out_of_memory_says_what_to_try() -> None:
    batch = {"image": torch.zeros(4, 3, 448, 448), "name": list("abcd")}
    line = out_of_memory(AdamWPoly(), batch)
    assert "4 images of 448×448" in line and "trainer.accumulate=2 (2 at once)" in line
    assert "trainer.precision=bf16" in line and "task.augment.crop=336" in line
    finest = AdamWPoly(accumulate=2, batch_size=6, precision="bf16")
    six = {"image": torch.zeros(6, 3, 224, 224), "name": list("abcdef"), "target": torch.zeros(6)}
    line = out_of_memory(finest, six)
    assert "trainer.accumulate=3 (2 at once)" in line and "bf16" not in line
    assert "task.augment.size=" in line
    texts = out_of_memory(AdamWPoly(batch_size=1, precision="bf16"), {"name": ["a"]})
    assert texts == "out of GPU memory with 1 examples at once; choose a smaller backbone"


def test_aggregators_hear_of_every_step_before_and_after_it(tmp_path: Path) -> None:
    training = loop(Recorder(tmp_path, [0], 0))
    training.network.gamma = Listening()
    training.fit()
    assert training.network.gamma.heard == [f for i in range(12) for f in (f"before {i}", "after")]


def test_a_phase_that_is_over_is_skipped(tmp_path: Path) -> None:
    run = Recorder(tmp_path, [0], checkpoint_seconds=0)
    loop(run, phase="adaptation").fit()
    train(tmp_path, stop=4)
    again = loop(run, phase="adaptation")
    again.fit()
    assert torch.equal(weights(again), torch.cat([p.flatten() for p in Tiny().parameters()]))
    assert train(tmp_path).step == 12
