"""Measures how alike tokens or nodes are after every layer of a model."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.axes import check_layout
from oversmoothing.diagnosis.calls import Call, calls
from oversmoothing.diagnosis.layers import Layers
from oversmoothing.diagnosis.measures import chosen_measures
from oversmoothing.diagnosis.plan import Options
from oversmoothing.diagnosis.report import Report
from oversmoothing.diagnosis.subject import Subject, unwrapped
from oversmoothing.diagnosis.summary import beside, summary
from oversmoothing.diagnosis.unchanged import observable, same_random_numbers
from oversmoothing.errors import InputError, described, meant

SIMILAR = 0.85  # difflib's ratio above which one name is taken for a misspelling of the other


def diagnose(
    model: nn.Module,
    *inputs: Any,
    layers: Layers = None,
    edges: Tensor | None = None,
    mask: Tensor | None = None,
    batch: Tensor | None = None,
    prefix: int | None = None,
    batches: Iterable[Any] | None = None,
    reference: nn.Module | str | None = None,
    seed: int = 0,
    layout: str | None = None,
    metrics: Iterable[str] | None = None,
    **kwargs: Any,
) -> Report:
    """Measures how alike tokens or nodes are after every layer of a model.

    The model runs in evaluation mode without gradients, and its state is restored afterwards.
    Forward hooks measure every layer's output; only numbers are kept.

    Args:
        model: of timm, transformers, torch-geometric, or any other.
        inputs: positional arguments of the model, or one ``Data`` of torch-geometric.
        layers: names, globs such as ``convs.*``, or modules; None: the repeated blocks.
        edges: of a graph, (2, E), both directions of every edge; None: ``edge_index``, if the model
            gets one.
        mask: true for every token that counts, (B, N); None: ``attention_mask`` or
            ``src_key_padding_mask``, if the model or a module in it gets one.
        batch: the graph of every node, (N,); None: ``batch``, if the model gets one.
        prefix: number of leading tokens that are left out, such as CLS; None: taken from
            the model, for timm and transformers.
        batches: an iterable of inputs, given instead of ``inputs``: tensors, tuples of positional
            arguments, dictionaries of keyword arguments, or torch-geometric data.
        reference: ``random``: the same model at random initialisation; or another model.
        seed: of the random initialisation.
        layout: of the layers' outputs, if it is ambiguous: ``BNC``, ``NBC``, ``BCN``, ``BCHW``,
            ``BHWC``, ``NC`` (B samples, N tokens or nodes, C channels, H rows, W columns).
        metrics: names of the metrics to measure; None: all that are available.
        kwargs: keyword arguments of the model.

    Returns:
        Means over samples (images, sentences, graphs), layer by layer.

    Raises:
        InputError: the model or the inputs cannot be measured.
    """
    model = unwrapped(model)
    _require_arguments(model, kwargs)
    notes = _kept_back(model, inputs, batches, {"edges": edges, "mask": mask})
    check_layout(layout)
    chosen = chosen_measures(metrics)
    subjects = [Subject.of(model, layers, chosen, layout)]
    if reference is not None:
        subjects.append(subjects[0].beside(reference, seed))
    options = Options(edges, mask, batch, prefix)
    with observable([subject.model for subject in subjects]), same_random_numbers(model):
        for call in calls(model, inputs, kwargs, batches, batch, _device(model)):
            for subject in subjects:
                own = call if subject is subjects[-1] else call.copied()
                with _explained(model, inputs, own):
                    subject.run(own, options)
    report, *others = (summary(subject.name, subject.watch, metrics) for subject in subjects)
    report = replace(report, notes=(*report.notes, *notes))
    return beside(report, others[0]) if others else report


@contextmanager
def _explained(model: nn.Module, inputs: tuple[Any, ...], call: Call) -> Iterator[None]:
    """Context in which an error of a model that got a dictionary or labels names the way out."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, TypeError, RuntimeError) as error:
        known = signature(model.forward).parameters
        if len(inputs) == 1 and isinstance(inputs[0], Mapping) and known.keys() & inputs[0]:
            raise InputError(
                f"inputs: expected arguments of {type(model).__name__}, got a dictionary of them; "
                "give them as keywords, diagnose(model, **inputs)"
            ) from error
        if not inputs and len(call.args) == 2 and _are_labels(call.args[1]):
            raise InputError(
                f"batches: {type(model).__name__} fails with the two tensors of a batch "
                f"({described(error)}); "
                "if the second holds labels, give batches=(x for x, _ in loader)"
            ) from error
        raise


def _are_labels(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() == 1 and not x.is_floating_point()


def _require_arguments(model: nn.Module, kwargs: Mapping[str, Any]) -> None:
    """Raises InputError for names that are not arguments of the model, and misspelt options."""
    if not kwargs:
        return
    parameters = signature(model.forward).parameters
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
    for option, parameter in list(signature(model.forward).parameters.items())[len(inputs) :]:
        if options.get(option) is None:
            continue
        if parameter.default is Parameter.empty and parameter.kind is not Parameter.VAR_KEYWORD:
            raise InputError(
                f"{option}: {name} has an argument of this name, too, but diagnose reads it as "
                "its own; give the model's argument by its position"
            )
        notes.append(f"Not passed to {name}: {option}; give the model's own by its position.")
    return notes


def _device(model: nn.Module) -> torch.device | None:
    return next((p.device for p in model.parameters()), None)
