"""The training loop of all tasks except those on graphs: resumable, on any device.

The batch, the dropout and all other random numbers of a step depend only on the seed and the step
(see ``data/loading.py``). So a killed training continues bit-identically on a CPU, and several
processes together use the same batches as one process.
"""

import contextlib
import math
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from oversmoothing import distributed
from oversmoothing.aggregators.base import advance, settle, steady
from oversmoothing.errors import InputError
from oversmoothing.lab.data.image_set import to_float
from oversmoothing.lab.data.loading import mixed_seed
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.training.recipes import Recipe
from oversmoothing.lab.training.replay import ReplayedBatches, set_capturable, set_rate

Batch = dict[str, Any]


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Moves the tensors of a batch to a device.

    There ``image`` is converted from uint8 to float32 in [0, 1], and ``mask`` to int64.
    """
    moved = {
        k: v.to(device, non_blocking=True) if isinstance(v, Tensor) else v for k, v in batch.items()
    }
    for key, convert in {"image": to_float, "mask": Tensor.long}.items():
        if key in moved and moved[key].dtype == torch.uint8:
            moved[key] = convert(moved[key])
    return moved


def split(batch: Batch, parts: int) -> list[Batch]:
    """Splits tensors and lists with one entry per example into equal parts; copies other values."""
    B = len(batch["name"])
    size = math.ceil(B / parts)
    cuts = [slice(start, start + size) for start in range(0, B, size)]

    def cut(value: Any, part: slice) -> Any:
        each = isinstance(value, list) or (isinstance(value, Tensor) and value.dim() > 0)
        return value[part] if each and len(value) == B else value

    return [{key: cut(value, part) for key, value in batch.items()} for part in cuts]


def out_of_memory(trainer: Recipe, batch: Batch) -> str:
    """Returns the error message for a batch that does not fit into GPU memory."""
    share = len(batch["name"])
    what, ways = "examples", []
    finer = (k for k in range(trainer.accumulate + 1, share + 1) if share % k == 0)
    if parts := next(finer, None):
        ways += [f"trainer.accumulate={parts} ({share // parts} at once)"]
    if trainer.precision == "fp32":
        ways += ["trainer.precision=bf16"]
    if "image" in batch:
        H, W = batch["image"].shape[-2:]
        what = f"images of {H}×{W}"
        side = max(16, H * 3 // 64 * 16) + H % 2  # patches, or EMANet's grid plus 1
        ways += [f"task.augment.{'size' if 'target' in batch else 'crop'}={side}"]
    now = math.ceil(share / trainer.accumulate)
    advice = f"add {', or '.join(ways)}" if ways else "choose a smaller backbone"
    return f"out of GPU memory with {now} {what} at once; {advice}"


@contextlib.contextmanager
def compiled(network: nn.Module, wanted: bool = True) -> Iterator[None]:
    """Context in which the backbone of a network is compiled for all its callers.

    So the passes for pseudo labels are also compiled. Evaluation runs outside the context, since
    its images have many sizes, and each size would be compiled anew.

    Methods listed in ``uncompiled`` of a module are not compiled. They are marked here and not by a
    decorator, since importing the decorator takes longer than importing the network.

    Args:
        network: its ``backbone`` is compiled, or the whole network if it has none.
        wanted: if false, nothing is compiled.
    """
    host = getattr(network, "backbone", network)
    changed = [(host, "forward", torch.compile)] if wanted else []
    for module in host.modules() if wanted else ():
        names = getattr(module, "uncompiled", ())
        changed += [(module, name, torch.compiler.disable) for name in names]
    for module, name, change in changed:
        setattr(module, name, change(getattr(module, name)))
    try:
        yield
    finally:
        for module, name, _ in changed:
            delattr(module, name)


class BaseObjective:
    """The loss that a task minimizes; subclasses implement ``losses``.

    Attributes:
        prepares_on_host: whether ``prepare`` draws random numbers or makes decisions on the host. A
            CUDA graph then has only the rest of a step.
    """

    prepares_on_host: ClassVar[bool] = False

    def phase(self, batch: Batch, step: int) -> Hashable | None:
        """Returns what determines the operations of a step besides the shapes of the batch.

        It is None if no CUDA graph may replay the step.
        """
        return ()

    def prepare(self, batch: Batch, step: int) -> Batch:
        """Adds the inputs of the losses to a batch before it is split; runs without gradient."""
        return batch

    def losses(self, model: nn.Module, part: Batch, step: int) -> dict[str, Tensor]:
        """Returns weighted losses by name; summed over parts and processes they are the batch's."""
        raise NotImplementedError


def check_weights(network: nn.Module, when: str) -> None:
    """Raises InputError if a parameter is not finite; the loss before a step does not show it."""
    finite = [parameter.isfinite().all() for parameter in network.parameters()]
    if finite and not torch.stack(finite).all():
        raise InputError(f"weights are not finite after {when}; lower trainer.lr")


def replays(trainer: Recipe, device: torch.device) -> bool:
    """Whether steps may be replayed from a CUDA graph."""
    alone = distributed.world() == 1 and trainer.accumulate == 1
    return trainer.cuda_graph and alone and not trainer.compile and device.type == "cuda"


class Checks(NamedTuple):
    """Measurements of the network during its training.

    Args:
        every: steps between two measurements; there is none after the last step.
        measure: returns numbers by name.
    """

    every: int
    measure: Callable[[], dict[str, Any]]


class TrainingLoop:
    """Trains a network.

    Args:
        network: its parameters are trained.
        objective: the loss.
        loader: called with ``batch_size``, ``iterations``, ``start``, ``rank`` and ``world``;
            yields this process's share of the batches ``start`` … ``iterations − 1``.
        trainer: the recipe.
        recorder: takes logs and checkpoints.
        device: of the network.
        phase: name of this training within the run; a finished phase is skipped.
        before: number of steps in earlier phases, which count for the warm-up of aggregators.
        checks: measurements during the training; None: none.
        layers: measures the layers, by name; logged every ``recorder.diagnose_every`` steps.

    Attributes:
        history: results of ``checks``, each with its ``step``; saved in checkpoints.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: BaseObjective,
        loader: Callable[..., Iterator[Batch]],
        trainer: Recipe,
        recorder: Recorder,
        device: torch.device,
        phase: str = "training",
        before: int = 0,
        checks: Checks | None = None,
        layers: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        self.layers = layers
        self.network, self.objective, self.loader = network, objective, loader
        self.trainer, self.recorder, self.device, self.phase = trainer, recorder, device, phase
        self.optimizer = trainer.optimizer(network)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.step, self.before, self.checks = 0, before, checks
        self.history: list[dict[str, Any]] = []
        self.unchecked: list[tuple[int, dict[str, Tensor], list[str]]] = []
        self.replays = replays(trainer, device)
        set_capturable(self.optimizer, self.replays)
        alone = {"prepare": not objective.prepares_on_host, "note": False}
        self.replayed = ReplayedBatches(partial(self._update, network, **alone))

    def fit(self) -> None:
        """Trains to the last iteration, starting from the checkpoint if there is one."""
        self._resume()
        if self.step >= self.trainer.iterations:
            return
        model, progress = self._wrapped(), self.recorder.progress
        with (
            compiled(self.network, self.trainer.compile),
            progress(self.trainer.iterations, "step") as bar,
        ):
            bar.update(self.step)
            if self.step == 0:
                self._diagnose()
            started, examples = time.monotonic(), 0
            for batch in self._batches():
                losses = self._step(model, batch)
                self.step, examples = self.step + 1, examples + self.trainer.batch_size
                bar.update(1)
                last = self.step == self.trainer.iterations
                should_log = last or self.step % self.trainer.log_every == 0
                should_measure = self.checks and not last and self.step % self.checks.every == 0
                should_save = last or should_measure or self.recorder.checkpoint_due()
                if should_log or should_save:
                    self._check_finite()
                if last:
                    check_weights(self.network, f"iteration {self.step}")
                if last or should_measure:
                    distributed.share_buffers(self.network)
                if should_log:
                    self._log(losses, examples / (time.monotonic() - started))
                    started, examples = time.monotonic(), 0
                started += self._diagnose(last)
                if should_measure:
                    self._measure()
                if should_save:
                    self._save()

    def _batches(self) -> Iterator[Batch]:
        trainer, share = self.trainer, {"rank": distributed.rank(), "world": distributed.world()}
        return self.loader(
            batch_size=trainer.batch_size, iterations=trainer.iterations, start=self.step, **share
        )

    def _wrapped(self) -> nn.Module:
        if distributed.world() == 1:
            return self.network
        return DistributedDataParallel(self.network, find_unused_parameters=True)  # WSSS: decoder

    def _step(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Makes one optimization step; returns the losses of this process's share before it."""
        trainer = self.trainer
        torch.manual_seed(mixed_seed("step", self.recorder.seeds, self.step, distributed.rank()))
        self.network.train()
        advance(self.network, self.before + self.step)
        for group, rate in zip(self.optimizer.param_groups, self.rates):
            set_rate(group, rate * trainer.factor(self.step))
        try:
            parts = self._optimize(model, to_device(batch, self.device))
        except torch.OutOfMemoryError as error:
            raise InputError(out_of_memory(trainer, batch)) from error
        return {name: sum(losses[name] for losses in parts) for name in parts[0]}

    def _optimize(self, model: nn.Module, batch: Batch) -> list[dict[str, Tensor]]:
        """Makes a step, replayed where possible; returns the losses of each part of the batch."""
        batch["batch_size"] = self.trainer.batch_size
        phase = self.objective.phase(batch, self.step) if self.replays else None
        if phase is None or not steady(self.network):
            return self._update(model, batch)
        if self.objective.prepares_on_host:
            batch = self._prepared(batch)
        found = self.replayed(batch, phase)
        self._note(found, batch)
        return found

    def _prepared(self, batch: Batch) -> Batch:
        with self._autocast():
            return self.objective.prepare(batch, self.step)

    def _update(
        self, model: nn.Module, batch: Batch, prepare: bool = True, note: bool = True
    ) -> list[dict[str, Tensor]]:
        """Accumulates the gradient over the parts of a batch, and makes a step with it."""
        self.optimizer.zero_grad()
        batch = self._prepared(batch) if prepare else batch
        parts, found = split(batch, self.trainer.accumulate), []
        for number, part in enumerate(parts, start=1):
            alone = distributed.world() == 1 or number == len(parts)
            with contextlib.nullcontext() if alone else model.no_sync():
                with self._autocast():
                    losses = self.objective.losses(model, part, self.step)
                loss = sum(losses.values())
                found.append({name: value.detach() for name, value in losses.items()})
                (loss * distributed.world()).backward()  # DDP takes the mean over processes
        if note:
            self._note(found, batch)
        self.optimizer.step()
        settle(self.network)
        return found

    def _autocast(self) -> torch.autocast:
        bf16 = self.trainer.precision == "bf16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=bf16)

    def _note(self, found: list[dict[str, Tensor]], batch: Batch) -> None:
        """Keeps losses for the next check, which is immediate on a CPU and deferred on a GPU."""
        parts = split({"name": batch["name"]}, self.trainer.accumulate)
        self.unchecked += [(self.step, own, part["name"]) for own, part in zip(found, parts)]
        if self.device.type == "cpu":
            self._check_finite()

    def _check_finite(self) -> None:
        """Raises InputError if a loss since the last check is not finite; synchronises with a GPU.

        It runs before every checkpoint, so a run that diverged can continue from the last one.
        """
        unchecked, self.unchecked = self.unchecked, []
        if not unchecked:
            return
        sums = torch.stack([sum(losses.values()) for _, losses, _ in unchecked])
        for (step, losses, names), finite in zip(unchecked, sums.isfinite().tolist()):
            if not finite:
                values = ", ".join(f"{name} {value.item():g}" for name, value in losses.items())
                raise InputError(
                    f"loss is not finite at iteration {step} ({values}) on examples "
                    f"{', '.join(names)}; lower trainer.lr, or look at these examples"
                )

    def _log(self, losses: dict[str, Tensor], speed: float) -> None:
        values = distributed.sum_over_processes([*losses.values()])
        shown = {f"loss_{name}": [float(value)] for name, value in zip(losses, values)}
        shown["examples_per_second"] = [round(speed, 2)]
        self.recorder.log(step=self.step, lr=float(self.optimizer.param_groups[0]["lr"]), **shown)

    def _measure(self) -> None:
        """Runs ``checks`` on the uncompiled network, since images have many sizes."""
        with self._uncompiled():
            measured = self.checks.measure()
        self.history.append({"step": self.step, **measured})
        numbers = {k: [v] for k, v in measured.items() if isinstance(v, int | float)}
        self.recorder.log(step=self.step, **numbers)

    def _diagnose(self, last: bool = False) -> float:
        """Logs the measures of the layers, if they are due; returns the seconds that it took."""
        began = time.monotonic()
        if self.layers and self.recorder.diagnosis_due(self.step, last):
            with self._uncompiled():
                measured = self.layers()
            if measured:
                self.recorder.log(step=self.step, layers=[measured])
        return time.monotonic() - began

    def _uncompiled(self) -> contextlib.AbstractContextManager:
        wanted = self.trainer.compile
        return torch.compiler.set_stance("force_eager") if wanted else contextlib.nullcontext()

    def _save(self) -> None:
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {"step": self.step, "phase": self.phase, "history": self.history}
        self.recorder.save_checkpoint(state)

    def _resume(self) -> None:
        state = self.recorder.load_checkpoint()
        with self.recorder.restoring():
            if state and state["phase"] != self.phase:
                self.step = 0 if self.phase == "training" else self.trainer.iterations
            elif state:
                self.network.load_state_dict(state["network"])
                self.optimizer.load_state_dict(state["optimizer"])
                self.step = int(state["step"])
                self.history = state.get("history", [])  # earlier versions kept none
