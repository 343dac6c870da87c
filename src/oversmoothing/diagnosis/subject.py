"""A model to diagnose, and the way it is run."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import UninitializedParameter

from oversmoothing.diagnosis.calls import Call
from oversmoothing.diagnosis.layers import Layers, choose_layers, readable
from oversmoothing.diagnosis.plan import Options, Plan
from oversmoothing.diagnosis.reference import redrawn_state
from oversmoothing.diagnosis.unchanged import unchanged
from oversmoothing.diagnosis.watch import Watch
from oversmoothing.errors import InputError


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to measure.

    Args:
        name: for the report.
        model: the model.
        watch: measures its layers.
        state: replaces its parameters and buffers during the measurement; None: its own.
    """

    name: str
    model: nn.Module
    watch: Watch
    state: dict[str, Tensor] | None = None

    @classmethod
    def of(
        cls, model: nn.Module, layers: Layers, measures: tuple[str, ...], layout: str | None
    ) -> "Subject":
        """Builds the subject for a model; for the arguments see ``choose_layers`` and ``Watch``."""
        watch = Watch(choose_layers(model, layers), measures, layout)
        return cls(type(model).__name__, model, watch)

    def beside(self, reference: nn.Module | str, seed: int) -> "Subject":
        """Builds the subject for the reference of this model.

        Args:
            reference: ``random``, or another model with layers of the same names.
            seed: of the random weights.

        Raises:
            InputError: the word is unknown, weights cannot be drawn, or layers are missing.
        """
        own = self.watch
        if isinstance(reference, nn.Module):
            plain = unwrapped(reference)
            if missing := own.layers.keys() - {readable(name) for name, _ in plain.named_modules()}:
                raise InputError(
                    f"reference: has no layer {min(missing)}; give a model whose layers have the "
                    "same names"
                )
            return self.of(plain, list(own.layers), own.measures, own.layout)
        if reference != "random":
            raise InputError(f"reference: expected 'random' or a model, got {reference!r}")
        watch = Watch(own.layers, own.measures, own.layout)
        name = f"{self.name} at random initialisation, seed {seed}"
        return Subject(name, self.model, watch, redrawn_state(self.model, seed))

    def run(self, call: Call, options: Options) -> None:
        """Calls the model once and restores its state."""
        plan = Plan(self.model, call, options)
        with unchanged(self.model), torch.no_grad(), self.watch.during(plan):
            for module in self.model.modules():  # eval() of LoRA layers would change weights
                module.training = False
            if self.state is None:
                self.model(*call.args, **call.kwargs)
            else:
                functional_call(self.model, self.state, call.args, call.kwargs)


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
