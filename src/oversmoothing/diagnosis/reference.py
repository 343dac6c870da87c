"""A model at random initialisation, to compare with."""

import copy
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.diagnosis.unchanged import same_random_numbers
from oversmoothing.errors import InputError

WAY_OUT = "give a model to compare with, reference=<a new model>"
OF_PEFT = ".base_layer."  # part of the names of parameters in layers that PEFT has wrapped
RESETS = ("reset_parameters", "_reset_parameters", "init_weights")


def redrawn_state(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Returns parameters and buffers of a model as they are before training.

    Models of transformers are built anew from their config, and those of timm from the name of
    their architecture. All other modules draw their parameters by ``reset_parameters`` or
    ``init_weights``. Running statistics of norms are reset. The model and torch's random numbers
    do not change.

    Raises:
        InputError: the model cannot be copied, or a parameter cannot be drawn anew.
    """
    with same_random_numbers(model), torch.no_grad():
        torch.manual_seed(seed)
        try:
            fresh = copy.deepcopy(model)
        except (RuntimeError, TypeError) as error:
            raise InputError(
                f"reference: the model cannot be copied ({error}); {WAY_OUT}"
            ) from error
        for name, parameter in fresh.named_parameters():
            if not parameter.is_floating_point():
                raise InputError(f"reference: {name} is {parameter.dtype}; {WAY_OUT}")
            parameter.fill_(torch.nan)
        _rebuild(fresh)
        _reset_lora(fresh)
        for module in reversed(list(fresh.modules())):
            if _undrawn(module.parameters()):
                _reset(module)
            if callable(reset := getattr(module, "reset_running_stats", None)):
                reset()  # norms without parameters may have running statistics, too
        if missing := [n for n, p in fresh.named_parameters() if _undrawn([p])]:
            raise InputError(f"reference: nothing draws {missing[0]} anew; {WAY_OUT}")
    return {**dict(fresh.named_parameters()), **dict(fresh.named_buffers())}


def _rebuild(module: nn.Module) -> None:
    """Copies the state of newly built models into those that a library can build."""
    built = _built(module)
    state = {} if built is None else built.state_dict()
    own = module.state_dict()
    plain = {name: name.replace(OF_PEFT, ".") for name in own}
    known = {n: state[plain[n]] for n in own if plain[n] in state}
    known = {n: value for n, value in known.items() if value.shape == own[n].shape}
    if known:  # an aggregator that was applied has further parameters
        module.load_state_dict(known, strict=False)
        return
    for child in module.children():
        _rebuild(child)


def _built(module: nn.Module) -> nn.Module | None:
    """Builds a model of transformers or timm with new weights; None for any other module."""
    library = type(module).__module__.split(".")[0]
    if library == "transformers" and hasattr(module, "_from_config"):
        return type(module)(module.config)
    if library == "timm" and "architecture" in (config := getattr(module, "pretrained_cfg", {})):
        import timm

        has = hasattr(module, "num_classes")
        classes: dict[str, Any] = {"num_classes": module.num_classes} if has else {}
        return timm.create_model(config["architecture"], pretrained=False, **classes)
    return None


def _reset_lora(model: nn.Module) -> None:
    """Draws the matrices of LoRA as PEFT does: their product is 0."""
    layers: list[Any] = [m for m in model.modules() if hasattr(m, "reset_lora_parameters")]
    for layer in layers:
        for name in (*layer.lora_A, *layer.lora_embedding_A):
            layer.reset_lora_parameters(name, True)


def _reset(module: nn.Module) -> None:
    for name in RESETS:
        reset: Any = getattr(module, name, None)
        if callable(reset):
            with suppress(TypeError):  # the method needs arguments
                reset()
            return


def _undrawn(parameters: Any) -> bool:
    return any(bool(parameter.isnan().any()) for parameter in parameters)
