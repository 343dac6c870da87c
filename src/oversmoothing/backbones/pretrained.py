"""Weights of timm's networks: published ones, those of a file, or none."""

import hashlib
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn

from oversmoothing.backbones import hub
from oversmoothing.errors import InputError

HEADS = ("head.", "head_dist.")  # classifiers of vision transformers: of no use here
RESAMPLED = ("pos_embed", "patch_embed.proj.weight")  # timm stretches these to fit without a word
COUNTER = "num_batches_tracked"  # of batch norms: old files are without it, nothing reads it


def load(
    network: nn.Module,
    name: str,
    weights: str,
    sha256: str | None,
    heads: tuple[str, ...] = HEADS,
) -> None:
    """Loads weights in place, all or none.

    Args:
        network: as ``vit_network.create`` or ``cnn_network.create`` made it.
        name: of the model, for messages.
        weights: ``timm``: those that timm publishes under this name, from the hub's cache or
            downloaded, unless ``OVERSMOOTHING_OFFLINE=1``; ``none``: leave the random ones; else
            a ``.safetensors`` or torch file in timm's, DeiT's or JAX's naming.
        sha256: the file's SHA-256 or its first 8 or more hex digits; the hub checks no content.
        heads: beginnings of names that the network is without.

    Raises:
        InputError: the weights cannot be had, are altered, or belong to another architecture.
    """
    path = chosen(weights, sha256, "timm", lambda: _published(network, name))
    if path is not None:
        network.load_state_dict(_fitted(read(path), network, name, path, heads))


def chosen(
    weights: str, sha256: str | None, word: str, published: Callable[[], Path]
) -> Path | None:
    """The file that ``backbone.weights`` means, held against its SHA-256; None: none.

    Args:
        weights: ``word``, ``none``, or a path.
        sha256: or its first 8 or more hex digits; null: not checked.
        word: for published ones, whose file ``published`` gives.

    Raises:
        InputError: a wrong digest, or one of no file; a file that cannot be read.
    """
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{8,64}", sha256):
        raise InputError(f"backbone.sha256: expected 8 to 64 hex digits or null, got {sha256!r}")
    if weights == "none":
        if sha256 is not None:
            raise InputError("backbone.sha256: there is no file with weights=none; set it to null")
        return None
    path = published() if weights == word else Path(weights)
    if not path.exists():
        raise InputError(
            f"backbone.weights: cannot read {path} (no such file); expected {word}, none, or the "
            "path of a .safetensors or torch file"
        )
    if sha256 is not None and not (got := digest(path)).startswith(sha256.lower()):
        raise InputError(
            f"{path}: expected SHA-256 {sha256}, got {got}; give backbone.weights the right file, "
            "or correct backbone.sha256"
        )
    return path


def digest(path: Path) -> str:
    """SHA-256 of a file in hex; what names weights, wherever they lie.

    Raises:
        InputError: no such file, or not readable.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(_no_file(path, error)) from error


def read(path: Path) -> dict[str, Tensor]:
    """Tensors of a weights file; nothing in it is run.

    Raises:
        InputError: missing, truncated, no weights in it, or a file that needs unpickling.
    """
    try:
        with path.open("rb"):
            safe = path.suffix == ".safetensors"
            content = load_file(path) if safe else torch.load(path, "cpu", weights_only=True)
    except OSError as error:
        raise InputError(_no_file(path, error)) from error
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, LookupError) as error:
        raise InputError(_unreadable(path, str(error))) from error
    for key in ("model", "state_dict"):
        content = content.get(key, content) if isinstance(content, dict) else {}
    if not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(
            f"{path}: no weights in it; expected a mapping of names to tensors, bare or under "
            "'model' or 'state_dict'"
        )
    return content


def _no_file(path: Path, error: OSError) -> str:
    return (
        f"backbone.weights: cannot read {path} ({error.strerror}); expected timm, none, or the "
        "path of a .safetensors or torch file"
    )


def _unreadable(path: Path, reason: str) -> str:
    if named := re.search(r"GLOBAL (\S+)", reason):
        return (
            f"{path}: needs unpickling of {named[1]}, which can run code, and is refused; if you "
            f"trust it: torch.save(torch.load({path.name!r}, weights_only=False)['model'], 'NEW')"
        )
    return f"{path}: truncated, or no weights file; {hub.WAY_OUT}"


def _published(network: nn.Module, name: str) -> Path:
    """timm's own file in the hub's cache, downloaded if missing."""
    repository = network.pretrained_cfg.get("hf_hub_id")
    if not repository:
        raise InputError(f"backbone.weights: timm publishes none for {name}; {hub.WAY_OUT}")
    return hub.published(repository, "timm's")


def _fitted(
    state: dict[str, Tensor], network: nn.Module, name: str, path: Path, heads: tuple[str, ...]
) -> dict[str, Tensor]:
    """State in timm's naming, without classifiers, that fits a network exactly."""
    own = network.state_dict()
    state = {key: value for key, value in state.items() if not key.startswith(heads)}
    if isinstance(network, VisionTransformer):
        state = _as_vit(state, network, own)
    counters = {key: own[key] for key in own if key.endswith(COUNTER)}
    state = {**counters, **state}
    missing, unexpected = ([k for k in a if k not in b] for a, b in [(own, state), (state, own)])
    shapes = {k: (state[k].shape, own[k].shape) for k in own if k in state}
    wrong = [f"{k} is {tuple(a)} for {tuple(b)}" for k, (a, b) in shapes.items() if a != b]
    if parts := hub.misfits(missing, unexpected, wrong):
        raise InputError(
            f"{path}: weights of another architecture: {parts}; expected {name}; "
            "give backbone.weights its weights, or backbone.name theirs"
        )
    return state


def _as_vit(
    state: dict[str, Tensor], network: VisionTransformer, own: dict[str, Tensor]
) -> dict[str, Tensor]:
    """DeiT's and JAX's namings as timm's."""
    if all(state[key].numel() == own[key].numel() for key in RESAMPLED if key in state):
        return checkpoint_filter_fn(state, network, adapt_layer_scale=True)
    return state
