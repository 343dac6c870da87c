"""Measures how alike tokens or nodes are after every layer of a model."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from inspect import Parameter, signature
from numbers import Integral
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils.data import DataLoader, Dataset

from oversmoothing.adapters.blocks import readable
from oversmoothing.adapters.prefix import class_token_of
from oversmoothing.adapters.recipe import lost, title
from oversmoothing.adapters.site import check_layout
from oversmoothing.diagnosis.calls import Call, calls, explained, has_forward
from oversmoothing.diagnosis.hetero import relations
from oversmoothing.diagnosis.measures import OF_GRADIENT, OF_LABELS, Metrics, chosen_measures
from oversmoothing.diagnosis.plan import Options, Plan
from oversmoothing.diagnosis.reference import WAY_OUT, Drawn, draw, kept
from oversmoothing.diagnosis.report import Report, gathered
from oversmoothing.diagnosis.tokens import Layers, choose_layers
from oversmoothing.diagnosis.unchanged import observable, same_random_numbers, unchanged
from oversmoothing.diagnosis.watch import Watch
from oversmoothing.errors import InputError, described, meant

ONE_AT_A_TIME = RLock()  # threads would take each other's hooks and weights for the model's own
SIMILAR = 0.85  # difflib's ratio above which one name is taken for a misspelling of the other
Reference = nn.Module | str | Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to measure.

    Args:
        name: for the report.
        model: the model.
        watch: measures its layers.
        drawn: replaces its tensors during the measurement; None: its own.
        notes: for the report, on how its weights were drawn.
    """

    name: str
    model: nn.Module
    watch: Watch
    drawn: Drawn | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, model: nn.Module, layers: Layers, measures: tuple[str, ...], *options: Any
    ) -> "Subject":
        """Builds the subject for a model; for the arguments see ``choose_layers`` and ``Watch``."""
        watch = Watch(choose_layers(model, layers), measures, *options)
        return cls(title(model), model, watch)

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
            watch = Watch(own.layers, own.measures, own.layout, own.loss)
            name = f"{self.name} at random initialisation, seed {seed}"
            drawn = draw(self.model, seed)
            return Subject(name, self.model, watch, drawn, drawn.notes)
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
        beside = self.of(plain, list(own.layers), own.measures, own.layout, own.loss)
        if not new:
            return beside
        weights, others = (dict(model.named_parameters()) for model in (self.model, plain))
        way = f"build the reference with another seed, seed={seed + 1}"
        notes = tuple(kept(weights, others, way))
        return replace(beside, name=f"{beside.name}, built with seed {seed}", notes=notes)

    def _called(self, build: Any, seed: int) -> Any:
        """Returns what a function builds, on the device and in the precision of the model."""
        with same_random_numbers(self.model):
            torch.manual_seed(seed)
            with explained("reference: the function", WAY_OUT):
                model = build()
        own = next(self.model.parameters(), None)
        if own is None or own.is_meta or not isinstance(model, nn.Module):
            return model
        return model.to(own.device, own.dtype if own.is_floating_point() else None)

    def run(self, call: Call, options: Options) -> None:
        """Calls the model once and restores its state."""
        drawn = self.drawn.inside(self.model) if self.drawn else nullcontext()
        loss = self.watch.loss is not None
        with torch.inference_mode(False):
            call = call.copied() if loss else call  # tensors of inference mode keep no gradients
        plan = Plan(self.model, call, options)
        with (
            drawn,
            unchanged(self.model),
            torch.inference_mode(False) if loss else nullcontext(),
            torch.set_grad_enabled(loss),
        ):
            for module in self.model.modules():  # eval() of LoRA layers would change weights
                if module.training:
                    module.training = False
            with self.watch.during(plan):
                output = self.model(*call.args, **call.kwargs)
            self.watch.backward(output)  # without hooks, as checkpointing calls layers again


def unwrapped(model: nn.Module) -> nn.Module:
    """Returns the model inside wrappers for several GPUs and for compilation.

    Raises:
        InputError: it is no module, is one of torch.jit, or has uninitialised parameters.
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


def diagnose(
    model: nn.Module,
    *inputs: Any,
    layers: Layers = None,
    edges: Tensor | None = None,
    mask: Tensor | None = None,
    batch: Tensor | Mapping[str, Tensor] | None = None,
    prefix: int | None = None,
    labels: Tensor | Mapping[str, Tensor] | None = None,
    batches: Iterable[Any] | None = None,
    reference: Reference | None = None,
    seed: int = 0,
    layout: str | None = None,
    metrics: Metrics = None,
    loss: Callable[[Any], Tensor] | None = None,
    pairs: Mapping[str, tuple[int, int]] | None = None,
    segments: Tensor | None = None,
    **kwargs: Any,
) -> Report:
    """Measures how alike tokens or nodes are after every layer of a model.

    The model runs in evaluation mode without gradients, and its state is restored afterwards.
    Forward hooks measure every layer's output; only numbers are kept.

    Args:
        model: of timm, transformers, torch-geometric, or any other.
        inputs: positional arguments of the model, or one ``Data`` of torch-geometric.
        layers: names, globs such as ``convs.*``, or modules; None: the repeated blocks.
        edges: of a graph, (2, E), both directions of every edge, or a sparse matrix (N, N) with
            their weights; None: the model's ``edge_index`` or ``adj_t``. The model's
            ``edge_weight`` counts if it belongs to these edges.
        mask: true for every token that counts, (B, N); None: the model's ``attention_mask``,
            ``src_key_padding_mask`` or ``key_padding_mask``.
        batch: the graph of every node, (N,); None: the model's ``batch``. With nodes of several
            types a dictionary by type.
        prefix: number of leading tokens that are left out, such as CLS; None: as the model has it,
            for timm, transformers and torchvision. With ``segments``, of every sequence.
        labels: the class of every node, (N,), or token, (B, N), for ``group_distance_ratio``;
            negative: none. With nodes of several types a dictionary by type. An argument
            ``labels`` of the model gets them as well; they are then measured only if ``metrics``
            names this measure.
        batches: an iterable of inputs, given instead of ``inputs``: tensors, tuples of positional
            arguments, dictionaries of keyword arguments, or torch-geometric data.
        reference: ``random``: the same model at random initialisation; or another model; or a
            function without arguments that returns a new model.
        seed: of the random initialisation.
        layout: of the layers' outputs, if it is ambiguous: ``BNC``, ``NBC``, ``BCN``, ``BCHW``,
            ``BHWC``, ``NC`` (B samples, N tokens or nodes, C channels, H rows, W columns).
        metrics: names of the metrics to measure, or functions of tokens (b, n, C) that return one
            number for each sample, (b,), shown by their ``__name__``; a function that returns a
            single number gets one sample at a time. None: all that are available and fast.
        loss: of the model's output, a number, such as ``lambda out: out.loss``; with it the
            gradients of the loss with respect to the tokens are measured as well.
        pairs: names and places of two tokens, such as ``{"cls-dist": (0, 1)}``, whose cosine is
            measured under this name; prefix tokens count, and samples in which one of them is
            padding are left out.
        segments: of packed sequences, each of which is a sample: the sequence of every token, (B,
            N) or (N,), negative for padding, or bounds (S + 1,) from 0, after the last of which
            there is padding; None: taken from ``cu_seq_lens_q``, ``cu_seqlens`` or from
            ``position_ids`` that start anew. Layers may return (N, C).
        kwargs: keyword arguments of the model.

    Returns:
        The report, with means over samples (images, sentences, graphs) for every layer.

    Raises:
        InputError: the model or the inputs cannot be measured.
    """
    model = unwrapped(model)
    _require_model(model)
    _require_arguments(model, kwargs)
    kwargs, batch, labels = _shared(model, kwargs, batch, labels, metrics)
    notes = [f"Without its method: {missing}."] if (missing := lost(model)) else []
    notes += _kept_back(model, inputs, batches, {"edges": edges, "mask": mask})
    check_layout(layout)
    chosen = chosen_measures(metrics, pairs)
    options = Options(edges, mask, batch, prefix, labels, segments)
    _require_loss(loss, metrics is not None and chosen)
    if not isinstance(seed, Integral) or abs(seed) >= 1 << 63:
        raise InputError(f"seed: expected a whole number below 2**63, got {seed!r}")
    subjects = [Subject.of(model, layers, chosen, layout, loss)]
    with ONE_AT_A_TIME:
        if reference is not None:
            subjects.append(other := subjects[0].beside(reference, seed))
            notes += other.notes
        given = calls(model, inputs, kwargs, batches, batch, _device(model))
        _run(subjects, given, options, batches is None)
    report, *others = (gathered(subject.name, subject.watch, metrics) for subject in subjects)
    counted = subjects[0].watch.layers.keys() - subjects[0].watch.images
    for of, subject in zip(others, subjects[1:]):
        notes += [f"{of.model}: {note}" for note in subject.watch.notes]
    notes += _counted(model, report, sorted(counted)) if prefix is None else []
    report = replace(report, notes=(*report.notes, *notes))
    return report.compare(others[0]) if others else report


def _shared(
    model: nn.Module, kwargs: dict[str, Any], batch: Any, labels: Any, metrics: Metrics
) -> tuple[dict[str, Any], Any, Any]:
    """Passes ``batch`` and ``labels`` to a model that takes them; returns those to measure with."""
    takes = _parameters(model)
    if "batch" in takes and batch is not None and not _is_vector(batch):
        kwargs, batch = {**kwargs, "batch": batch}, None  # no graph of every node
    if "labels" in takes and labels is not None:
        asked = metrics is not None and {*OF_LABELS} & {*chosen_measures(metrics)}
        kwargs, labels = {**kwargs, "labels": labels}, labels if asked else None
    return kwargs, batch, labels


def _run(subjects: list[Subject], given: Iterable[Call], options: Options, single: bool) -> None:
    """Calls every subject with the same arguments and random numbers."""
    model = subjects[0].model
    with observable([subject.model for subject in subjects]), same_random_numbers(model):
        for call in given:
            for subject in subjects:
                own = call if subject is subjects[-1] else call.copied()
                with _explained(model, own, single):
                    subject.run(own, options)


@contextmanager
def _explained(model: nn.Module, call: Call, single: bool) -> Iterator[None]:
    """Context in which an error of a model that got unusual inputs names the way out."""
    try:
        yield
    except (InputError, torch.OutOfMemoryError):
        raise
    except (AttributeError, IndexError, TypeError, RuntimeError, ValueError) as error:
        found = _unusual(call, _parameters(model).keys(), single) or _unfit(model, call)
        if found is None:
            raise
        what, way = found
        raise InputError(
            f"{'inputs' if single else 'batches'}: {type(model).__name__} fails with {what} "
            f"({described(error)}); {way}"
        ) from error


def _unusual(call: Call, known: Collection[str], single: bool) -> tuple[str, str] | None:
    """Returns what is unusual about the arguments of a model, and the way out; None: nothing."""
    values = [*call.args, *call.kwargs.values()]
    if not single and len(call.args) == 2 and _is_vector(call.args[1]):
        return "two tensors", "if the second holds labels, give batches=(x for x, _ in loader)"
    for x in values:
        if isinstance(x, list | DataLoader | Dataset | Iterator) or (
            hasattr(x, "__array__") and not isinstance(x, Tensor)
        ):
            return f"a {type(x).__name__}", "give tensors, or several batches by batches=…"
    if len(values) > 1:
        return None
    x = values[0] if values else None
    if isinstance(x, Mapping) and known & x.keys():
        return "a dictionary of its arguments", "give them as keywords, diagnose(model, **inputs)"
    if isinstance(x, Tensor) and x.dim() == 3 and x.shape[0] in (1, 3):
        return f"a tensor {tuple(x.shape)}", "if it is one image, give x[None]; or give batches=…"
    if x is None or isinstance(x, str | int | float):
        return repr(x), "give tensors, diagnose(model, x), or batches=…"
    return None


def _unfit(model: nn.Module, call: Call) -> tuple[str, str] | None:
    """Returns what a model's forward lacks, and the way out; None: nothing."""
    given = [*call.args, *call.kwargs.values(), *call.data.values()]
    of_graphs = any(hasattr(module, "propagate") for module in model.modules())
    if of_graphs and not relations(call) and not any(map(_has_edges, given)):
        return "inputs that have no edges", (
            "give them to the model, diagnose(model, x, edge_index), or a Data that has them; "
            "edges= is not passed to it"
        )
    try:
        signature(model.forward).bind(*call.args, **call.kwargs)
    except TypeError:
        return "these arguments", "give those of its forward, diagnose(model, *args, **kwargs)"
    return None


def _has_edges(x: Any) -> bool:
    """Whether an argument is, or has, integers (2, E) or a sparse matrix."""
    x = getattr(x, "edge_index", x)
    if isinstance(x, Tensor) and x.layout is torch.strided:
        return x.dim() == 2 and len(x) == 2 and not x.is_floating_point()
    return isinstance(x, Tensor) or type(x).__name__ == "SparseTensor"


def _parameters(model: nn.Module) -> Mapping[str, Parameter]:
    return signature(model.forward).parameters


def _is_vector(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() == 1 and not x.is_floating_point()


def _counted(model: nn.Module, report: Report, layers: Iterable[str]) -> list[str]:
    """Says which parameter may be a leading token that is not left out."""
    tokens = [token for name in layers if (token := class_token_of(model, name))]
    return [
        f"Not left out: {token}, since its place is not known; prefix=1 leaves out the first token."
        for token in dict.fromkeys(tokens if report.unit == "tokens" else ())
    ]


def _require_model(model: nn.Module) -> None:
    name = type(model).__name__
    if not has_forward(model):
        parts = [part for part, _ in model.named_children()]
        raise InputError(
            f"model: {name} has no forward; give the part that has one"
            f"{''.join(f', such as model.{part}' for part in parts[:1])}"
        )
    offloaded = any(hasattr(module, "_hf_hook") for module in model.modules())  # by accelerate
    if not offloaded and any(p.is_meta for p in model.parameters()):
        raise InputError(
            f"model: parameters of {name} are on the meta device and have no values; load weights "
            "first, or give a model on a CPU or GPU"
        )


def _require_loss(loss: Any, metrics: Any) -> None:
    if loss is not None and not callable(loss):
        raise InputError(f"loss: expected a function of the model's output, got {loss!r}")
    if loss is None and metrics and {*OF_GRADIENT} & {*metrics}:
        raise InputError("metrics: gradients need a loss; give loss=<function of the output>")


def _require_arguments(model: nn.Module, kwargs: Mapping[str, Any]) -> None:
    """Raises InputError for names that are not arguments of the model, and misspelt options."""
    if not kwargs:
        return
    parameters = _parameters(model)
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    known = [*signature(diagnose).parameters, *parameters]
    for name in kwargs.keys() - parameters.keys():
        if not takes_any or get_close_matches(name, known, 1, SIMILAR):
            raise InputError(
                f"{name}: no option of diagnose and no argument of {type(model).__name__}; "
                f"{meant(name, known)}"
            )


def _kept_back(
    model: nn.Module, inputs: tuple[Any, ...], batches: Any, options: Mapping[str, Any]
) -> list[str]:
    """Lists options that are also arguments of the model, and are not passed to it.

    Raises:
        InputError: such an argument is required.
    """
    if batches is not None:
        return []
    name, notes = type(model).__name__, []
    for option, parameter in list(_parameters(model).items())[len(inputs) :]:
        if options.get(option) is None:
            continue
        if parameter.default is Parameter.empty and parameter.kind is not Parameter.VAR_KEYWORD:
            raise InputError(
                f"{option}: {name} also has an argument of this name, but diagnose reads it as "
                "its own; give the model's argument by its position"
            )
        notes.append(f"Not passed to {name}: {option}; give the model's own by its position.")
    return notes


def _device(model: nn.Module) -> torch.device | None:
    """Returns the device of the inputs; None: accelerate moves them, or it does not matter."""
    devices = [p.device for p in model.parameters()]
    return None if any(d.type == "meta" for d in devices) else next(iter(devices), None)
