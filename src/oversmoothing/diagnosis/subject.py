"""A model to diagnose, and how it is run."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import UninitializedParameter

from oversmoothing.diagnosis.calls import Call
from oversmoothing.diagnosis.layers import Layers, choose_layers
from oversmoothing.diagnosis.plan import Options, Plan
from oversmoothing.diagnosis.reference import random_state
from oversmoothing.diagnosis.unchanged import unchanged
from oversmoothing.diagnosis.watch import Watch
from oversmoothing.errors import InputError


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that is measured.

    Args:
        name: for the report.
        model: that runs.
        watch: of its layers.
        state: takes the place of its parameters and buffers for a while; None: its own.
    """

    name: str
    model: nn.Module
    watch: Watch
    state: dict[str, Tensor] | None = None

    @classmethod
    def of(
        cls, model: nn.Module, layers: Layers, measures: tuple[str, ...], layout: str | None
    ) -> "Subject":
        """Returns a model as it is; for the arguments see ``choose_layers`` and ``Watch``."""
        watch = Watch(choose_layers(model, layers), measures, layout)
        return cls(type(model).__name__, model, watch)

    def beside(self, reference: nn.Module | str, seed: int) -> "Subject":
        """Returns what this model is compared with.

        Args:
            reference: ``random``, or another model with layers of the same names.
            seed: of the random weights.

        Raises:
            InputError: an unknown word, weights that cannot be drawn, or layers that are missing.
        """
        own = self.watch
        if isinstance(reference, nn.Module):
            return self.of(unwrapped(reference), list(own.layers), own.measures, own.layout)
        if reference != "random":
            raise InputError(f"reference: expected 'random' or a model, got {reference!r}")
        watch = Watch(own.layers, own.measures, own.layout)
        name = f"{self.name} at random initialisation, seed {seed}"
        return Subject(name, self.model, watch, random_state(self.model, seed))

    def run(self, call: Call, options: Options) -> None:
        """Calls the model once, and leaves it as it was."""
        plan = Plan(self.model, call, options)
        with unchanged(self.model), torch.no_grad(), self.watch.during(plan):
            for module in self.model.modules():  # eval() of LoRA layers would change weights
                module.training = False
            if self.state is None:
                self.model(*call.args, **call.kwargs)
            else:
                functional_call(self.model, self.state, call.args, call.kwargs)


def unwrapped(model: nn.Module) -> nn.Module:
    """Returns the model within wrappers for several GPUs and for compilation.

    Raises:
        InputError: not a module, one of torch.jit, or one without parameters yet.
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
