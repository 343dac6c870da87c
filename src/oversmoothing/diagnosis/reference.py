"""A model at random initialisation, to compare with.

Weights are drawn by the code that drew them when the model was built, as far as it can be called
again: the constructors of libraries, and the methods ``reset_parameters``, ``init_weights`` and the
like. What the constructor of another class does by itself is not repeated; a note says so.
"""

import copy
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_leaves, tree_map

from oversmoothing.diagnosis.calls import explained
from oversmoothing.diagnosis.unchanged import same_attributes, same_random_numbers, same_values
from oversmoothing.errors import InputError

WAY_OUT = "give a function that returns a new model, reference=<function>"
OF_PEFT = ".base_layer."  # part of the names in layers that PEFT has wrapped
METHODS = (  # names of methods that draw weights, in the order of their calls
    *("reset_running_stats", "reset_parameters", "_reset_parameters", "_init_weight"),
    *("_init_weights", "init_weights", "_initialize_weights", "initialize_weights"),
)
TRUSTED = {"builtins", "torch", "torch_geometric"}  # constructors do no more than these methods
LIBRARIES = {*TRUSTED, "timm", "transformers", "torchvision"}  # methods write into self only
PASSES = 15  # power iterations of spectral_norm after a new weight, as in torch's constructor


@dataclass(frozen=True, eq=False)
class Drawn:
    """The tensors of a model at random initialisation.

    Attributes:
        attributes: of every module, those that hold tensors.
        notes: where the weights may differ from those of a new model.
    """

    attributes: dict[nn.Module, dict[str, Any]]
    notes: tuple[str, ...]

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """Context in which the model holds these tensors instead of its own."""
        with same_attributes(model):
            for module, attributes in self.attributes.items():
                vars(module).update(attributes)
            yield


def draw(model: nn.Module, seed: int) -> Drawn:
    """Draws weights for a model as they are before training.

    Models of transformers are built anew from their config, and those of timm from the name of
    their architecture, if they have its sizes. All other modules call their own methods, inner
    modules first. That code never sees the tensors of the model, and neither the model nor random
    numbers change.

    Raises:
        InputError: weights are no plain tensors in memory, or nothing draws them anew.
    """
    for name, parameter in model.named_parameters():
        _require_plain(name, parameter)
    for name, module in model.named_modules():
        if any(isinstance(value, torch.ScriptObject) for value in vars(module).values()):
            raise InputError(f"reference: {name} has quantised weights; {WAY_OUT}")
    own = dict(model.named_parameters())
    with _untouched(model), same_attributes(model), same_random_numbers(model), torch.no_grad():
        torch.manual_seed(seed)
        _renew(model)
        libraries = Libraries()
        libraries.rebuild(model)
        rest = [m for m in reversed(list(model.modules())) if m not in libraries.done]
        _reset_all(rest)
        libraries.complete()
        _reset_lora(model)
        if missing := [n for n, p in model.named_parameters() if _undrawn([p])]:
            raise InputError(_undrawable(model, missing[0]))
        attributes = {m: {k: v for k, v in vars(m).items() if _tensors(v)} for m in model.modules()}
        notes = _notes([m for m in rest if m not in libraries.done])
        return Drawn(attributes, (*notes, *kept(own, dict(model.named_parameters()), WAY_OUT)))


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Restores weights that methods of the model reach by other references, and refuses them."""
    own = [m for m in model.modules() if _library(m) not in LIBRARIES]
    risky = any(callable(getattr(m, name, None)) for m in own for name in METHODS)
    tensors = [*model.parameters(), *model.buffers()] if risky else []
    before = [(x, x.detach().clone()) for x in tensors if x.layout is torch.strided]
    try:
        yield
    finally:
        changed = [(x, value) for x, value in before if not same_values(x, value)]
        with torch.no_grad():
            for x, value in changed:
                x.copy_(value)
    if changed:
        raise InputError(f"reference: methods of the model write into other tensors; {WAY_OUT}")


def kept(own: Mapping[str, Tensor], drawn: Mapping[str, Tensor], way: str) -> Iterator[str]:
    """Says if most weights are those of the model, as after a constructor that loads a file.

    Args:
        own: weights of the model, by name.
        drawn: those of the reference.
        way: what to do then if the model was trained, for the sentence.
    """
    alike = [n for n in own if n in drawn and own[n].shape == drawn[n].shape]
    varied = [n for n in alike if own[n].numel() > 1 and bool(own[n].std() > 0)]
    same = sum(own[n].numel() for n in varied if torch.equal(own[n], drawn[n]))
    if 2 * same > sum(own[n].numel() for n in varied):
        yield (
            "Reference: most of its weights equal those of the model, which was drawn with the "
            f"same seed, or has a constructor that loads weights. If it was trained, {way}."
        )


def _undrawable(model: nn.Module, name: str) -> str:
    """Says why a parameter cannot be drawn, and what to give in place of ``random``."""
    owner = type(model.get_submodule(name.rpartition(".")[0])).__name__
    return (
        f"reference: only the constructor of {owner} sets the parameter {name}, and 'random' calls "
        "no constructors; give a function that builds a new model, such as "
        f"reference=lambda: {type(model).__name__}(…)"
    )


def _require_plain(name: str, parameter: nn.Parameter) -> None:
    if parameter.is_meta:
        what = "is not in memory (offloaded, or on the meta device)"
    elif parameter.layout is not torch.strided:
        what = "is sparse"
    elif type(parameter.data) is not Tensor:
        what = f"is a {type(parameter.data).__name__} (sharded or quantised)"
    elif not parameter.is_floating_point():
        what = f"is {parameter.dtype}"
    else:
        return
    raise InputError(f"reference: {name} {what}; {WAY_OUT}")


def _renew(model: nn.Module) -> None:
    """Replaces the tensors of a model by new ones: parameters are NaN, others keep their values."""
    old: set[Tensor] = {*model.parameters()}
    new: dict[Tensor, Tensor] = {}
    lists = [m for m in model.modules() if isinstance(m, parametrize.ParametrizationList)]
    kept = {p for m in lists for p in m.parameters(recurse=False)}  # not all can compute with NaN

    def renewed(x: Any) -> Any:
        if isinstance(x, Tensor) and x not in new:
            value = x.detach().clone()
            new[x] = nn.Parameter(value, x.requires_grad) if x in old else value
            if x in old - kept:
                value.fill_(torch.nan)
        return new[x] if isinstance(x, Tensor) else x

    for module in model.modules():
        own = vars(module)
        own |= {name: tree_map(renewed, value) for name, value in own.items() if _tensors(value)}
        own.pop("_is_hf_initialized", None)  # transformers would skip the module
    if held := [name for name, p in model.named_parameters() if p in old]:
        raise InputError(f"reference: {held[0]} cannot be replaced; {WAY_OUT}")


class Libraries:
    """Draws the weights of transformers' and timm's models by building new ones.

    Attributes:
        done: modules whose weights are those of a new model.
    """

    def __init__(self) -> None:
        self.done: set[nn.Module] = set()
        self.others: list[tuple[nn.Module, nn.Module]] = []  # models, and new ones of other sizes

    def rebuild(self, module: nn.Module) -> None:
        """Copies the weights of new models into models of the same sizes."""
        if module in self.done:
            return
        new = _new_model(module)
        if new is None or not (_same_sizes(module, new) and _same_settings(module, new)):
            self.others += [] if new is None else [(module, new)]
            for child in module.children():
                self.rebuild(child)
            return
        state, modules = new.state_dict(), dict(new.named_modules())
        known = {name: state[_plain(name)] for name in module.state_dict() if _plain(name) in state}
        module.load_state_dict(known, strict=False)
        for name, inner in module.named_modules():
            own = (f"{name}.{n}".lstrip(".") for n, _ in inner.named_parameters("", False))
            if _plain(name) in modules and all(n in known for n in own):
                self.done.add(inner)

    def complete(self) -> None:
        """Draws weights of models of other sizes as in the new models, wherever sizes are equal.

        A weight that nothing draws, and whose size differs, is drawn from the new model's
        numbers for it.
        """
        for module, new in self.others:
            state, same = new.state_dict(), _same_settings(module, new)
            complete = True
            for name, parameter in module.named_parameters():
                values, exact = _in_place_of(_plain(name), parameter.shape, state)
                complete &= exact and same
                if values is not None and (_undrawn([parameter]) or (exact and same)):
                    parameter.copy_(values)
            if complete or any(hasattr(module, name) for name in METHODS):
                self.done |= {*module.modules()}


def _new_model(module: nn.Module) -> nn.Module | None:
    if hasattr(module, "_from_config") and _arguments(type(module)) == 1:
        with explained(f"reference: {type(module).__name__}(config)", WAY_OUT):
            return type(module)(copy.deepcopy(module.config))
    config = getattr(module, "pretrained_cfg", None)
    if _library(module) == "timm" and isinstance(config, dict) and "architecture" in config:
        import timm

        has = hasattr(module, "num_classes")
        classes: dict[str, Any] = {"num_classes": module.num_classes} if has else {}
        return timm.create_model(config["architecture"], pretrained=False, **classes)
    return None


def _same_sizes(module: nn.Module, new: nn.Module) -> bool:
    """Whether two models have the same modules of their library, with weights of equal shapes."""
    state, names = new.state_dict(), dict(new.named_modules())
    libraries = {_library(module), _library(new)} - {"__main__"}
    if any(_library(m) in libraries and _plain(n) not in names for n, m in module.named_modules()):
        return False
    found = ((value, state.get(_plain(name))) for name, value in module.state_dict().items())
    return all(other is None or one.shape == other.shape for one, other in found)


def _same_settings(module: nn.Module, new: nn.Module) -> bool:
    """Whether attributes such as ``weight_init_mode`` and ``init_values`` are equal."""
    others = dict(new.named_modules())
    return all(
        value == getattr(others[_plain(name)], key, value)
        for name, own in module.named_modules()
        if _plain(name) in others
        for key, value in vars(own).items()
        if "init" in key and type(value) in (int, float, str)
    )


def _in_place_of(
    name: str, shape: torch.Size, state: dict[str, Tensor]
) -> tuple[Tensor | None, bool]:
    """Finds values for a weight in another state, and whether they come from one of its shape."""
    if name in state and state[name].shape == shape:
        return state[name], True
    role = re.sub(r"\d+", "*", name)
    same = [v for n, v in state.items() if re.sub(r"\d+", "*", n) == role and v.shape == shape]
    source = same[0] if same else state.get(name)
    if source is None:
        return None, False
    return source.flatten()[torch.randint(source.numel(), shape)], bool(same)


def _reset_all(modules: list[nn.Module]) -> None:
    given: list[Any] = [m for m in modules if parametrize.is_parametrized(m)]
    found = [(m, name, inside) for m in given for name, inside in m.parametrizations.items()]
    with parametrize.cached():  # methods write into what a parametrisation computes
        for module, name, _ in found:
            getattr(module, name).fill_(torch.nan)
        for module in modules:
            _reset(module)
        values = [getattr(module, name).clone() for module, name, _ in found]
    for (module, name, inside), value in zip(found, values):
        with explained(f"reference: the parametrisation of {name}", WAY_OUT):
            setattr(module, name, value)
        for inner in inside.modules():
            inner.training = True
        for _ in range(PASSES if [*inside.buffers()] else 0):
            getattr(module, name)


def _reset(module: nn.Module) -> None:
    of_transformers = hasattr(module, "_from_config")  # its method calls the others
    for name in ("init_weights",) if of_transformers else METHODS:
        method: Any = getattr(module, name, None)
        if not inspect.isroutine(method):
            continue
        needed = _arguments(method)
        with explained(f"reference: {type(module).__name__}.{name}", WAY_OUT):
            if needed == 0 and (_undrawn(module.parameters()) or not _only_calls_layers(module)):
                method()
            elif needed == 1 and "init" in name:
                module.apply(method)
    if isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder):  # torch copies one layer
        for layer in [*module.layers][1:]:
            layer.load_state_dict(module.layers[0].state_dict(), strict=False)


def _only_calls_layers(module: nn.Module) -> bool:
    """Whether a module of torch-geometric draws nothing that its layers have not drawn."""
    place = type(module).__module__
    own = ".nn.models." in place and not place.endswith(".basic_gnn")
    return place.startswith("torch_geometric.") and not own


def _reset_lora(model: nn.Module) -> None:
    layers: list[Any] = [m for m in model.modules() if hasattr(m, "reset_lora_parameters")]
    for layer in layers:
        for name in (*layer.lora_A, *layer.lora_embedding_A):
            layer.reset_lora_parameters(name, True)


def _notes(modules: list[nn.Module]) -> Iterator[str]:
    """Says how weights were drawn where constructors outside of the libraries may do more."""
    own = [m for m in modules if _library(m) not in TRUSTED and any(True for _ in m.parameters())]
    if not own:
        return
    kinds = dict.fromkeys(type(m).__name__ for m in reversed(own))
    shown = ", ".join([*kinds][:3]) + ", …" * (len(kinds) > 3)
    names = dict.fromkeys(n for m in own for n in METHODS if callable(getattr(m, n, None)))
    methods = ", ".join([*names][:3]) or "reset_parameters of its layers"
    yield (
        f"Reference: weights drawn by {methods}. Other code that changes weights in constructors "
        f"({shown}) is not repeated; if there is any, {WAY_OUT}."
    )


def _plain(name: str) -> str:
    return f"{name}.".replace(OF_PEFT, ".")[:-1]


def _library(module: nn.Module) -> str:
    return type(module).__module__.split(".")[0]


def _arguments(function: Any) -> int:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind in kinds for p in parameters)


def _tensors(value: Any) -> bool:
    try:
        return any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))
    except RecursionError:  # a dictionary that holds itself
        return False


def _undrawn(parameters: Iterable[Tensor]) -> bool:
    return any(bool(parameter.isnan().any()) for parameter in parameters)
