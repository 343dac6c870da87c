"""Measures how alike tokens or nodes are after every layer of a model."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from oversmoothing.diagnosis.calls import Call, calls
from oversmoothing.diagnosis.layers import Layers, choose_layers
from oversmoothing.diagnosis.measures import chosen_measures
from oversmoothing.diagnosis.plan import Options, Plan
from oversmoothing.diagnosis.reference import random_state
from oversmoothing.diagnosis.report import Report
from oversmoothing.diagnosis.tokens import check_layout
from oversmoothing.diagnosis.unchanged import observable, same_random_numbers, unchanged
from oversmoothing.diagnosis.watch import Watch
from oversmoothing.errors import InputError


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

    The model runs in evaluation mode without gradients, and is left as it was. Forward hooks
    measure every layer's output; nothing but numbers is kept.

    Args:
        model: of timm, transformers, torch-geometric, or any other.
        inputs: positional arguments of the model, or one ``Data`` of torch-geometric.
        layers: names, globs such as ``convs.*``, or modules; None: the repeated blocks.
        edges: of a graph, (2, E), both directions of every edge; None: ``edge_index``, if the model
            gets one.
        mask: true for every token that counts, (B, N); None: ``attention_mask`` or
            ``src_key_padding_mask``, if the model gets one.
        batch: the graph of every node, (N,); None: ``batch``, if the model gets one.
        prefix: number of leading tokens that are left out, such as CLS; None: what timm and
            transformers say of the model.
        batches: an iterable of inputs, in the place of ``inputs``: tensors, tuples of positional
            arguments, dictionaries of keyword arguments, or torch-geometric data.
        reference: ``random``: the same model at random initialisation; or another model.
        seed: of the random initialisation.
        layout: of the layers' outputs, if it is not clear: ``BNC``, ``NBC``, ``BCHW``, ``BHWC``,
            ``NC`` (B samples, N tokens or nodes, C channels, H rows, W columns).
        metrics: names of those to measure; None: all that can be had.
        kwargs: keyword arguments of the model.

    Returns:
        Means over samples (images, sentences, graphs), layer by layer.

    Raises:
        InputError: a model or inputs that cannot be measured.
    """
    model = unwrapped(model)
    check_layout(layout)
    chosen = chosen_measures(metrics)
    watch = Watch(choose_layers(model, layers), chosen, layout)
    subjects = [Subject(model, watch)]
    if reference is not None:
        subjects.append(_reference(model, reference, seed, list(watch.layers), chosen, layout))
    options = Options(edges, mask, batch, prefix)
    with observable([subject.model for subject in subjects]), same_random_numbers(model):
        for call in calls(model, inputs, kwargs, batches, _device(model)):
            for subject in subjects:
                subject.run(call, options)
    own, *others = (summary(type(s.model).__name__, s.watch) for s in subjects)
    return replace(own, reference=_beside(own, others[0])) if others else own


@dataclass(frozen=True, eq=False)
class Subject:
    """A model that is measured.

    Args:
        model: that runs.
        watch: of its layers.
        state: takes the place of its parameters and buffers for a while; None: its own.
    """

    model: nn.Module
    watch: Watch
    state: dict[str, Tensor] | None = None

    def run(self, call: Call, options: Options) -> None:
        """Calls the model once, and leaves it as it was."""
        plan = Plan(self.model, call, options)
        with unchanged(self.model), torch.no_grad(), self.watch.during(plan):
            self.model.eval()
            if self.state is None:
                self.model(*call.args, **call.kwargs)
            else:
                functional_call(self.model, self.state, call.args, call.kwargs)


def _reference(
    model: nn.Module,
    reference: nn.Module | str,
    seed: int,
    names: list[str],
    measures: tuple[str, ...],
    layout: str | None,
) -> Subject:
    if isinstance(reference, str):
        if reference != "random":
            raise InputError(f"reference: expected 'random' or a model, got {reference!r}")
        watch = Watch(choose_layers(model, names), measures, layout)
        return Subject(model, watch, random_state(model, seed))
    other = unwrapped(reference)
    return Subject(other, Watch(choose_layers(other, names), measures, layout))


def _beside(own: Report, other: Report) -> Report:
    """Returns a reference with the metrics of a report, if it has its layers."""
    if own.layers != other.layers:
        raise InputError(
            f"reference: calls {len(other.layers)} layers where the model calls "
            f"{len(own.layers)}; give a model of the same architecture"
        )
    absent: list[float | None] = [None] * len(own.layers)
    return replace(other, values={metric: other.values.get(metric, absent) for metric in own.values})


def unwrapped(model: nn.Module) -> nn.Module:
    """Returns the model within wrappers for several GPUs and for compilation.

    Raises:
        InputError: not a module, or one of torch.jit.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    if hasattr(model, "_orig_mod"):
        return unwrapped(model._orig_mod)
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            "model: modules of torch.jit take no hooks; give the model that was scripted or traced"
        )
    return model


def summary(model: str, watch: Watch) -> Report:
    """Returns means, standard deviations and counts of what a watch has measured."""
    several = {name for name, number in watch.values if number}
    layers = tuple(f"{n}#{i + 1}" if n in several else n for n, i in watch.values)
    rows = [{m: torch.cat(v) for m, v in row.items()} for row in watch.values.values()]
    names = [m for m in watch.measures if any(m in row for row in rows)]
    finite = {m: [_finite(row.get(m)) for row in rows] for m in names}
    return Report(
        model=model,
        layers=layers,
        values={m: [_none(v.mean()) for v in finite[m]] for m in names},
        std={m: [_none((v - v.mean()).square().mean().sqrt()) for v in finite[m]] for m in names},
        counts={m: [len(v) for v in finite[m]] for m in names},
        samples=len(watch.sizes),
        tokens=(min(watch.sizes), max(watch.sizes)),
        notes=tuple(f"Left out: {what}." for what in watch.left_out),
    )


def _finite(values: Tensor | None) -> Tensor:
    """Leaves out samples without a value, such as the MAD of a graph without edges."""
    return torch.empty(0) if values is None else values[values.isfinite()]


def _none(value: Tensor) -> float | None:
    return value.item() if value.isfinite() else None


def _device(model: nn.Module) -> torch.device | None:
    return next((p.device for p in model.parameters()), None)
