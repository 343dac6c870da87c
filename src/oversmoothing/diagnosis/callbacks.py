"""Layer metrics during training: for plain loops, transformers' Trainer, and Lightning."""

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import torch.distributed as dist
from torch import nn

from oversmoothing.diagnosis.calls import has_forward
from oversmoothing.diagnosis.diagnose import diagnose
from oversmoothing.diagnosis.report import Report
from oversmoothing.diagnosis.sentences import line
from oversmoothing.distributed import initialized, sharded
from oversmoothing.errors import InputError, meant


def layer_metrics(model: nn.Module, *inputs: Any, **options: Any) -> dict[str, float]:
    """Returns the results of ``diagnose`` as numbers to log, such as ``wandb.log(numbers)``.

    Args:
        model, inputs, options: see :func:`diagnose`.

    Returns:
        ``oversmoothing/<metric>/<layer>`` -> number. Layers without a value are left out.

    Raises:
        InputError: a model or inputs that cannot be measured.
    """
    return _numbers(diagnose(model, *inputs, **options))


def _numbers(report: Report | None) -> dict[str, float]:
    if report is None:
        return {}
    return {
        f"oversmoothing/{metric}/{layer}": value
        for metric, values in report.values.items()
        for layer, value in zip(report.layers, values)
        if value is not None
    }


class _Steps:
    """Measures a model in some steps of its training.

    Inputs that cannot be measured raise at the first step. Later they only warn, so that training
    goes on.
    """

    def __init__(self, every: int, options: dict[str, Any]) -> None:
        super().__init__()
        if not isinstance(every, int) or every < 1:
            raise InputError(f"every: expected a whole number of steps, 1 or more, got {every!r}")
        self.every, self.options = every, options
        self.last: int | None = None  # step that was measured last

    def report(
        self, tells: bool, step: int, model: nn.Module, *inputs: Any, **kwargs: Any
    ) -> Report | None:
        """Returns the report of a step in the process that tells; None at other steps."""
        if step % self.every or step == self.last or not (tells or sharded(model)):
            return None
        first, self.last = self.last is None, step
        try:
            found = diagnose(model, *inputs, **kwargs, **self.options)
            return found if tells else None
        except InputError as error:
            if first:
                raise
            warnings.warn(f"step {step}: {error}", stacklevel=3)
            return None


class Monitor(_Steps):
    """Measures the layers of a model in a plain training loop, and prints a line each time.

    ``monitor = Monitor(model, every=100)`` before the loop, ``wandb.log(monitor(images))`` in it.
    Each call is a step, and the first one is measured. The training is the same bit for bit.

    Args:
        model: see :func:`diagnose`.
        every: number of calls from one measurement to the next.
        unit: what a call is in the printed line, such as ``epoch``.
        show: gets the line, such as ``logger.info``; None: no line.
        **options: of :func:`diagnose`.

    Attributes:
        step: number of calls so far; set it when a training goes on.

    Raises:
        InputError: ``every`` is below 1; or, at the first call, the inputs cannot be measured.
            Later calls only warn of this.
    """

    def __init__(
        self,
        model: nn.Module,
        every: int = 100,
        unit: str = "step",
        show: Callable[[str], Any] | None = print,
        **options: Any,
    ) -> None:
        super().__init__(every, options)
        if not (show is None or callable(show)):
            raise InputError(f"show: expected a function of a line, or None, got {show!r}")
        self.model, self.unit, self.show, self.step = model, unit, show, 0

    def __call__(self, *inputs: Any, **kwargs: Any) -> dict[str, float]:
        """Returns the numbers of :func:`layer_metrics`; none if it is not their turn.

        With several processes only the first one measures and prints. If they share the parameters
        out among them, as with ``fully_shard``, all must call, and each measures its own inputs.

        Args:
            *inputs: of the model; the same in every call, if the numbers are to be compared.
            **kwargs: of the model.
        """
        step, self.step = self.step, self.step + 1
        first = not initialized() or dist.get_rank() == 0
        report = self.report(first, step, self.model, *inputs, **kwargs)
        if report and self.show:
            self.show(f"{self.unit} {step}: {line(report)}")
        return _numbers(report)


class _Logged(_Steps):
    """Base class of both callbacks: measures the same inputs before training and in some steps."""

    library: ClassVar[str]  # candidates, separated by spaces
    base: ClassVar[str]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _blank(cls)

    def __init__(self, inputs: Any, every: int, **options: Any) -> None:
        super().__init__(every, options)
        self.inputs = inputs

    def __reduce_ex__(self, protocol: Any) -> tuple:
        """Pickles and copies by the public class, which can be imported."""
        return _blank, (type(self).__mro__[1],), vars(self)

    def measured(self, model: nn.Module, step: int, tells: bool = True) -> dict[str, float]:
        """Returns the numbers of a step in the process that tells; none at other steps."""
        return _numbers(self.report(tells, step, model, batches=[self.inputs]))


class TrainerCallback(_Logged):
    """Logs layer metrics of a model that transformers' ``Trainer`` trains.

    ``trainer.add_callback(TrainerCallback(trainer, inputs, every=100))``. The numbers go through
    ``trainer.log`` to its ``log_history`` and to everything that it reports to.

    Args:
        trainer: the trainer of the model.
        inputs: one batch, such as a dictionary of keyword arguments of the model.
        every: number of optimisation steps between two measurements; the first is before training.
        options: of :func:`diagnose`.

    Raises:
        InputError: transformers is not installed, or ``every`` is below 1.
    """

    library, base = "transformers", "TrainerCallback"

    def __init__(self, trainer: Any, inputs: Any, every: int = 100, **options: Any) -> None:
        super().__init__(inputs, every, **options)
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._log(state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._log(state, control)

    def _log(self, state: Any, control: Any) -> None:
        first, step = state.is_world_process_zero, state.global_step
        if found := self.measured(self.trainer.model, step, first):
            due = control.should_log  # log() resets it, and the loss would not be logged
            self.trainer.log(found)
            control.should_log = due


class LightningCallback(_Logged):
    """Logs layer metrics of a model that Lightning's ``Trainer`` trains.

    ``Trainer(callbacks=[LightningCallback(images, every=100)])``. The numbers go to the trainer's
    loggers.

    Args:
        inputs: one batch for the forward of the module.
        every: number of optimisation steps between two measurements; the first is before training.
        module: name of the submodule to measure, such as ``model``; empty: the LightningModule, or
            its only child with parameters if it has no ``forward``.
        options: of :func:`diagnose`.

    Raises:
        InputError: Lightning is not installed, or ``every`` is below 1.
    """

    library, base = "lightning.pytorch pytorch_lightning", "Callback"

    def __init__(self, inputs: Any, every: int = 100, module: str = "", **options: Any) -> None:
        super().__init__(inputs, every, **options)
        self.module = module

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        self._log(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: nn.Module, *_: Any) -> None:
        self._log(trainer, pl_module)

    def _log(self, trainer: Any, pl_module: nn.Module) -> None:
        first, step = trainer.is_global_zero, trainer.global_step
        if found := self.measured(self._part(pl_module), step, first):
            for logger in trainer.loggers:
                logger.log_metrics(found, step=step)

    def _part(self, pl_module: nn.Module) -> nn.Module:
        parts = dict(pl_module.named_modules())
        if self.module not in parts:
            raise InputError(f"module: {self.module!r} is no module; {meant(self.module, parts)}")
        if self.module or has_forward(pl_module):
            return parts[self.module]
        trained = [n for n, m in pl_module.named_children() if any(True for _ in m.parameters())]
        if len(trained) != 1:
            raise InputError(
                f"module: {type(pl_module).__name__} has no forward; name the part to measure, "
                f"such as module={next(iter(trained), 'model')!r}"
            )
        return parts[trained[0]]


def _blank(cls: Any) -> Any:
    return object.__new__(_derived(cls))


@cache
def _derived(cls: Any) -> type:
    """Derives a class from the library's callback class; imports the library."""
    for name in cls.library.split():
        try:
            return type(cls.__name__, (cls, getattr(import_module(name), cls.base)), {})
        except ImportError as error:
            reason: ImportError = error
    package = cls.library.split(".")[0]
    raise InputError(
        f"{cls.__name__}: needs {package} ({reason}); pip install {package}"
    ) from reason
