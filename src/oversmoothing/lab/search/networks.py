"""Builds networks of several configurations in one module.

Configurations have equal shape if they differ only in the rates of the recipe, its epochs, and
options declared as ``float | Tensor``, which a backbone or aggregator takes as a tensor with one
entry for each network. An aggregator with one instance per network takes one value.
"""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args, get_type_hints

import torch
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from oversmoothing.aggregators.base import make
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.engine import Engine
from oversmoothing.lab.backbones.per_seed import PerSeed, stateless
from oversmoothing.lab.config.instantiate import build
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.start import parts
from oversmoothing.lab.search.adam import StackedAdam, owned, rates_of
from oversmoothing.lab.tasks.base import Parts

BUILT = ("backbone", "aggregator", "then")
OF_NETWORK = ("lr", "weight_decay", "dense_weight_decay", "epochs")  # of the recipe


def shape(config: DictConfig) -> str:
    """Returns a text that is equal for configurations that can be trained together."""
    plain = OmegaConf.to_container(config, resolve=True)
    nodes = {key: dict(plain[key]) for key in (*BUILT, "trainer", "data", "task")}
    for key in BUILT:
        options = per_network(get_method(nodes[key]["_target_"])) & nodes[key].keys()
        if options and (key == "backbone" or _shared(config[key], config.backbone.hidden)):
            nodes[key] = {name: own for name, own in nodes[key].items() if name not in options}
    for option in OF_NETWORK:
        nodes["trainer"].pop(option, None)
    return json.dumps(nodes, sort_keys=True)


def _shared(node: DictConfig, dim: int) -> bool:
    """Whether all networks share one instance of an aggregator."""
    with torch.random.fork_rng(devices=[]):
        return stateless(make(build(node), dim))


@functools.cache
def per_network(target: Callable) -> frozenset[str]:
    """Returns the options of a class that can be a tensor with one entry for each network."""
    hints = get_type_hints(target.__init__ if isinstance(target, type) else target)
    return frozenset(key for key, hint in hints.items() if set(get_args(hint)) == {float, Tensor})


def stacked(configs: Sequence[DictConfig], data: Graph, device: torch.device) -> Parts:
    """Builds the parts of a batch of networks, one for each configuration.

    Args:
        configs: of equal shape, one for each network.
        data: the graph.
        device: where the networks are trained.
    """
    each = [parts(config, data) for config in configs]
    aggregators = [_together(own, device) for own in zip(*(own.aggregators for own in each))]
    backbone = _together([own.backbone for own in each], device)
    return replace(each[0], aggregators=aggregators, backbone=backbone)


def _together(factories: Sequence[partial], device: torch.device) -> partial:
    """Merges several factories to one with their stacked options."""
    first = factories[0]
    given = {
        option: [float(factory.keywords[option]) for factory in factories]
        for option in sorted(per_network(first.func) & first.keywords.keys())
    }
    dtype = torch.get_default_dtype()
    tensors = {
        option: torch.tensor(values, device=device, dtype=dtype).view(-1, 1, 1)
        for option, values in given.items()
        if len(set(values)) > 1
    }
    return partial(first, **tensors)


def require_searchable(model: torch.nn.Module, trainers: Sequence[Any]) -> None:
    """Checks that a search can train these networks together with these recipes.

    Raises:
        InputError: networks are of another kind, or a recipe uses mini-batches or does not keep the
            epoch of the highest validation accuracy.
    """
    other = "; search with `python train.py -m hydra/sweeper=optuna …` instead"
    if not isinstance(model, Engine):
        raise InputError(f"backbone: a batched search trains gcn, gcnii or jknet{other}")
    if any(trainer.on_host for trainer in trainers):
        raise InputError(f"trainer: a batched search trains on the full batch, trainer=adam{other}")
    if any(own.selection != "best-val" or own.patience is not None for own in trainers):
        raise InputError(
            "trainer: a search keeps the epoch with the highest validation accuracy; set "
            "trainer.selection=best-val and trainer.patience=null"
        )


def optimizer(model: torch.nn.Module, trainers: Sequence[Any]) -> StackedAdam:
    """Creates Adam with the rates of each network's recipe."""
    device = next(model.parameters()).device
    make = partial(torch.tensor, device=device, dtype=torch.get_default_dtype())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = zip(*(trainer.groups(model) for trainer in trainers))  # equal except for decays
    decays = {}
    for of_networks in groups:
        decay = make([group["weight_decay"] for group in of_networks])
        decays |= {names[id(p)]: decay for p in of_networks[0]["params"]}
    lr = make([trainer.lr for trainer in trainers])
    return StackedAdam(dict(model.named_parameters()), rates_of(model, lr, decays))


def chosen(model: torch.nn.Module, state: dict[str, Any], keep: Sequence[int]) -> dict[str, Any]:
    """Selects the part of a state that belongs to some of the networks.

    Args:
        model: all networks.
        state: of the model or of its optimizer, by names of the model.
        keep: numbers of the networks.
    """
    owners, places = dict(owned(model)), {old: new for new, old in enumerate(keep)}
    shared = tuple(
        f"{path}."
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, PerSeed) and module.stateless
    )
    found = {}
    for name, value in state.items():
        if name.startswith(shared) or value is None:
            found[name] = value
        elif name not in owners:
            found[name] = value[list(keep)] if torch.is_tensor(value) else [value[i] for i in keep]
        elif owners[name] in places:
            old, new = owners[name], places[owners[name]]
            found[name.replace(f".copies.{old}.", f".copies.{new}.", 1)] = value
    return found
