"""Layer metrics during training: for plain loops, transformers' Trainer, and Lightning."""

import warnings
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from torch import nn

from oversmoothing.diagnosis.calls import has_forward
from oversmoothing.diagnosis.diagnose import diagnose
from oversmoothing.errors import InputError, meant


def layer_metrics(model: nn.Module, *inputs: Any, **options: Any) -> dict[str, float]:
    """Returns the results of ``diagnose`` as numbers to log.

    For a plain loop: ``wandb.log(layer_metrics(model, images))``.

    Args:
        model: see :func:`diagnose`.
        *inputs: see :func:`diagnose`.
        **options: see :func:`diagnose`.

    Returns:
        ``oversmoothing/<metric>/<layer>`` -> number. Layers without a value are left out.

    Raises:
        InputError: a model or inputs that cannot be measured.
    """
    report = diagnose(model, *inputs, **options)
    return {
        f"oversmoothing/{metric}/{layer}": value
        for metric, values in report.values.items()
        for layer, value in zip(report.layers, values)
        if value is not None
    }


class _Logged:
    """Base class of both callbacks: measures the same inputs before training and in some steps.

    Inputs that cannot be measured raise before the first step. Later they only warn, so that
    training goes on.
    """

    library: ClassVar[str]  # candidates, separated by spaces
    base: ClassVar[str]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return _blank(cls)

    def __init__(self, inputs: Any, every: int, **options: Any) -> None:
        super().__init__()
        if every < 1:
            raise InputError(f"every: expected 1 or more steps, got {every}")
        self.inputs, self.every, self.options = inputs, every, options
        self.last: int | None = None  # step that was measured last

    def __reduce_ex__(self, protocol: Any) -> tuple:
        """Pickles and copies by the public class, which can be imported."""
        return _blank, (type(self).__mro__[1],), vars(self)

    def measured(self, model: nn.Module, step: int) -> dict[str, float]:
        """Returns the numbers of a step; none at steps that are not measured."""
        if step % self.every or step == self.last:
            return {}
        first, self.last = self.last is None, step
        try:
            return layer_metrics(model, batches=[self.inputs], **self.options)
        except InputError as error:
            if first:
                raise
            warnings.warn(f"step {step}: {error}", stacklevel=2)
            return {}


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
        if state.is_world_process_zero and (
            found := self.measured(self.trainer.model, state.global_step)
        ):
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
        if trainer.is_global_zero and (
            found := self.measured(self._part(pl_module), trainer.global_step)
        ):
            for logger in trainer.loggers:
                logger.log_metrics(found, step=trainer.global_step)

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
