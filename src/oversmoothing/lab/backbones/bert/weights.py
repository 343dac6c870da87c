"""Loads published weights, or those of a file, into BERT and ALBERT."""

import re
from pathlib import Path

from torch import Tensor, nn

from oversmoothing.errors import InputError
from oversmoothing.lab.backbones import hub, pretrained

OLD_NAMES = {"gamma": "weight", "beta": "bias"}  # of norms, in the oldest files
HEADS = ("cls.", "predictions.", "sop_classifier.", "classifier.", "qa_outputs.")
LAYER = re.compile(r"encoder\.layer\.(\d+)\.")


def load(network: nn.Module, name: str, weights: str, sha256: str | None, depth: int) -> None:
    """Loads weights into a network, in place.

    If the file has more layers than the network, the first ones are used. If it has fewer, the
    other layers keep their random weights, as in ContraNorm's runs over depth.

    Args:
        network: BertModel or AlbertModel of transformers.
        name: of the model on the hub.
        weights: ``hub``: from the hub's cache or downloaded, unless ``OVERSMOOTHING_OFFLINE=1``.
            ``none``: keep the random ones. Else: path of a ``.safetensors`` or torch file.
        sha256: SHA-256 of the file or its first 8 or more hex digits; None: no check.
        depth: number of layers of the network.

    Raises:
        InputError: the weights are not available, have another SHA-256, or are of another
            architecture.
    """
    path = pretrained.chosen(weights, sha256, "hub", lambda: hub.published(name, "the hub's"))
    if path is not None:
        state = _fitted(_renamed(pretrained.read(path)), network, name, path, depth)
        network.load_state_dict(state, strict=False)


def _renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Renames tensors to the names of today's bare encoder and leaves heads out."""
    found = {}
    for key, value in state.items():
        if key.startswith(HEADS) or key.endswith("position_ids"):
            continue
        *path, last = key.removeprefix("bert.").removeprefix("albert.").split(".")
        found[".".join([*path, OLD_NAMES.get(last, last)])] = value
    return found


def _fitted(
    state: dict[str, Tensor], network: nn.Module, name: str, path: Path, depth: int
) -> dict[str, Tensor]:
    """Removes layers that the network does not have; checks that all other tensors fit."""
    own = network.state_dict()
    known = max([-1, *(_layer(key) for key in state)]) + 1
    state = {key: value for key, value in state.items() if _layer(key) < depth}
    optional = [key for key in own if known <= _layer(key)]
    if parts := hub.misfits(state, own, optional):
        raise InputError(
            f"{path}: weights of another architecture: {parts}; expected {name}; set "
            "backbone.dim, .heads, .ffn and .vocabulary to those of the weights"
        )
    return state


def _layer(key: str) -> int:
    """Returns the index of the layer that a tensor belongs to; −1 if it belongs to none."""
    found = LAYER.match(key)
    return int(found[1]) if found else -1
