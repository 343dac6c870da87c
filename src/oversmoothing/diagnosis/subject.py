"""A model to diagnose, and the way it is run."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from oversmoothing.diagnosis.calls import Call
from oversmoothing.diagnosis.layers import Layers, choose_layers, readable
from oversmoothing.diagnosis.plan import Options, Plan
from oversmoothing.diagnosis.reference import Drawn, draw, explained
from oversmoothing.diagnosis.unchanged import same_random_numbers, unchanged
from oversmoothing.diagnosis.watch import Watch
from oversmoothing.errors import InputError

Reference = nn.Module | str | Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to measure.

    Args:
        name: for the report.
        model: the model.
        watch: measures its layers.
        drawn: replaces its tensors during the measurement; None: its own.
    """

    name: str
    model: nn.Module
    watch: Watch
    drawn: Drawn | None = None

    @classmethod
    def of(
        cls, model: nn.Module, layers: Layers, measures: tuple[str, ...], layout: str | None
    ) -> "Subject":
        """Builds the subject for a model; for the arguments see ``choose_layers`` and ``Watch``."""
        watch = Watch(choose_layers(model, layers), measures, layout)
        return cls(type(model).__name__, model, watch)

    def beside(self, reference: Reference, seed: int) -> "Subject":
        """Builds the subject for the reference of this model.

        Args:
            reference: ``random``, another model with layers of the same names, or a function that
                returns one.
            seed: of the random weights.

        Raises:
            InputError: the word is unknown, weights cannot be drawn, or layers are missing.
        """
        own = self.watch
        if reference == "random":
            watch = Watch(own.layers, own.measures, own.layout)
            name = f"{self.name} at random initialisation, seed {seed}"
            return Subject(name, self.model, watch, draw(self.model, seed))
        new = not isinstance(reference, nn.Module | str) and callable(reference)
        plain: Any = self._called(reference, seed) if new else reference
        if not isinstance(plain, nn.Module):
            raise InputError(
                "reference: expected 'random', a model, or a function that returns one, got "
                f"{f'a function that returns {plain!r}' if new else repr(plain)}"
            )
        plain = unwrapped(plain)
        if missing := own.layers.keys() - {readable(name) for name, _ in plain.named_modules()}:
            raise InputError(
                f"reference: has no layer {min(missing)}; give a model whose layers have the "
                "same names"
            )
        beside = self.of(plain, list(own.layers), own.measures, own.layout)
        return replace(beside, name=f"{beside.name}, built with seed {seed}") if new else beside

    def _called(self, build: Any, seed: int) -> Any:
        """Returns what a function builds, on the device and in the precision of the model."""
        with same_random_numbers(self.model):
            torch.manual_seed(seed)
            with explained("the function"):
                model = build()
        own = next(self.model.parameters(), None)
        if own is None or own.is_meta or not isinstance(model, nn.Module):
            return model
        return model.to(own.device, own.dtype if own.is_floating_point() else None)

    def run(self, call: Call, options: Options) -> None:
        """Calls the model once and restores its state."""
        plan = Plan(self.model, call, options)
        drawn = self.drawn.inside(self.model) if self.drawn else nullcontext()
        with drawn, unchanged(self.model), torch.no_grad(), self.watch.during(plan):
            for module in self.model.modules():  # eval() of LoRA layers would change weights
                module.training = False
            self.model(*call.args, **call.kwargs)


def unwrapped(model: nn.Module) -> nn.Module:
    """Returns the model inside wrappers for several GPUs and for compilation.

    Raises:
        InputError: it is not a module, a module of torch.jit, or has uninitialised parameters.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):  # torch.compile
        return unwrapped(inner)
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            "model: modules of torch.jit take no hooks; give the model that was scripted or traced"
        )
    if any(isinstance(p, UninitializedParameter) for p in model.parameters()):
        raise InputError("model: has lazy modules without parameters yet; call the model once")
    return model
