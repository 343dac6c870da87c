"""Loads published weights, or those of a file, into timm's networks."""

import hashlib
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from oversmoothing.errors import Absent, InputError, closest, described
from oversmoothing.lab.store.files import FORBIDDEN, offline
from oversmoothing.lab.store.weights import load_tensors

HEADS = ("head.", "head_dist.")  # classifiers of vision transformers, not used here
RESAMPLED = ("pos_embed", "patch_embed.proj.weight")  # timm resizes these silently
COUNTER = "num_batches_tracked"  # of batch norms; unused, and missing in old files
PUBLISHED = "model.safetensors"  # name of the weights file in a repository
WAY_OUT = "set backbone.weights=PATH to load a file, or backbone.weights=none for random weights"
PAGE = "docs/guides/data.md, section Weights, says where to get it"


def load(
    network: nn.Module, name: str, weights: str, sha256: str | None, heads: tuple[str, ...] = HEADS
) -> None:
    """Loads weights into a network, in place; all of them must fit.

    Args:
        network: from ``vit.create_vit`` or ``cnn.create_cnn``.
        name: of the model, for error messages.
        weights: ``timm``: the weights that timm publishes under this name, from the hub's cache
            or downloaded, unless ``OVERSMOOTHING_OFFLINE=1``. ``none``: keep the random ones.
            Else: path of a ``.safetensors`` or torch file with the names of timm, DeiT or JAX.
        sha256: SHA-256 of the file or its first 8 or more hex digits; None: no check. The hub
            does not check the content of its files.
        heads: prefixes of names that the network does not have.

    Raises:
        InputError: the weights are not available, have another SHA-256, or are of another
            architecture.
    """
    path = file_of(network, name, weights, sha256)
    if path is not None:
        network.load_state_dict(_fitted(read(path), network, name, path, heads))


def file_of(network: nn.Module, name: str, weights: str, sha256: str | None) -> Path | None:
    """Returns the file that ``load`` reads, or None; raises the InputErrors of ``load``."""
    return chosen(weights, sha256, "timm", lambda: _published(network, name))


def chosen(
    weights: str, sha256: str | None, word: str, published: Callable[[], Path]
) -> Path | None:
    """Returns the file that ``backbone.weights`` names, after a check of its SHA-256.

    For ``weights=none`` it is None, and no digest is checked, since no file is read.

    Args:
        weights: ``word``, ``none``, or a path.
        sha256: the expected SHA-256 or its first 8 or more hex digits; None: no check.
        word: the value of ``weights`` for published weights, such as ``timm``.
        published: returns the file of the published weights.

    Raises:
        InputError: a malformed or wrong digest, or a file that cannot be read.
    """
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{8,64}", sha256):
        raise InputError(f"backbone.sha256: expected 8 to 64 hex digits or null, got {sha256!r}")
    if weights == "none":
        return None
    path = published() if weights == word else Path(weights)
    try:
        with path.open("rb") as file:
            got = None if sha256 is None else hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Absent(
            f"backbone.weights: cannot read {path} ({error.strerror}); expected {word}, none, or "
            f"the path of a .safetensors or torch file; {PAGE}"
        ) from error
    if got and not got.startswith(sha256.lower()):
        raise InputError(
            f"{path}: expected SHA-256 {sha256}, got {got}; give backbone.weights the right file, "
            "or correct backbone.sha256"
        )
    return path


def published(repository: str, whose: str) -> Path:
    """Returns the weights file of a repository, from the hub's cache or downloaded.

    Args:
        repository: name on the hub.
        whose: who publishes the weights, for the error message.

    Raises:
        InputError: the file is not in the cache, and the download failed or
            ``OVERSMOOTHING_OFFLINE=1`` forbids it.
    """
    import huggingface_hub as hub  # takes a second

    cached = hub.try_to_load_from_cache(repository, PUBLISHED)
    if isinstance(cached, str):
        return Path(cached)
    if offline():
        reason = FORBIDDEN
    else:
        try:
            hub.get_hf_file_metadata(hub.hf_hub_url(repository, PUBLISHED))  # a download retries
            return Path(hub.hf_hub_download(repository, PUBLISHED))
        except Exception as error:  # the hub and its HTTP library may raise any error
            reason = described(error)
    raise Absent(
        f"{repository}/{PUBLISHED}: {whose} weights are not available ({reason}); {WAY_OUT}"
    )


def misfits(
    state: Mapping[str, Tensor], own: Mapping[str, Tensor], optional: Container[str] = ()
) -> str:
    """Describes which weights do not fit a network; returns an empty string if all fit.

    Args:
        state: weights of a file.
        own: state of the network.
        optional: names of tensors that the file may lack.
    """
    lists = {
        "missing": [key for key in own if key not in state and key not in optional],
        "unexpected": [key for key in state if key not in own],
    }
    parts = [f"{len(keys)} {what} ({keys[0]}, …)" for what, keys in lists.items() if keys]
    shapes = {key: (state[key].shape, own[key].shape) for key in own if key in state}
    wrong = [f"{key} is {tuple(a)} for {tuple(b)}" for key, (a, b) in shapes.items() if a != b]
    return "; ".join([*parts, *wrong[:1]])


def create(name: str, **options: Any) -> nn.Module:
    """Builds a network with random weights; ``options`` are those of ``timm.create_model``.

    Raises:
        InputError: the model has no weights with the tag in the name.
    """
    import timm  # takes seconds

    try:
        return timm.create_model(name, **options)
    except RuntimeError as error:
        base = name.split(".")[0]
        tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{base}.*")]
        raise InputError(f"backbone.name: {error} expected one of {', '.join(tags)}") from error


def check_name(name: str, modules: dict[str, str], kind: str, example: str) -> None:
    """Checks that timm has a model.

    Args:
        name: of the model, with or without the tag of its weights.
        modules: of ``timm.models``, with the first letters of the names that are supported.
        kind, example: of these networks, for the message.

    Raises:
        InputError: no module has this model.
    """
    import timm  # takes seconds

    known = [m for own, start in modules.items() for m in timm.list_models(f"{start}*", module=own)]
    base = name.split(".")[0]
    if base not in known:
        close = closest(base, dict(zip(known, known)))
        hint = f"did you mean {close!r}?" if close else f"for example {example}"
        raise InputError(f"backbone.name: expected {kind} of timm, got {name!r}; {hint}")


def read(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of a weights file without running code from it.

    Raises:
        InputError: the file is truncated, has no weights, or needs code to be unpickled.
    """
    try:
        content = load_file(path) if path.suffix == ".safetensors" else load_tensors(path)
    except (SafetensorError, OSError, ValueError, RuntimeError, EOFError, LookupError) as error:
        raise InputError(_unreadable(path, str(error))) from error
    for key in ("model", "state_dict"):
        content = content.get(key, content) if isinstance(content, dict) else {}
    if not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(
            f"{path}: contains no weights; expected a mapping of names to tensors, at the top or "
            "under 'model' or 'state_dict'; give backbone.weights another file"
        )
    return content


def _unreadable(path: Path, reason: str) -> str:
    if named := re.search(r"GLOBAL (\S+)", reason):
        return (
            f"{path}: refused, because unpickling {named[1]} can run code; if you trust the file: "
            f"torch.save(torch.load({path.name!r}, weights_only=False)['model'], 'NEW')"
        )
    return f"{path}: truncated, or not a weights file; {WAY_OUT}"


def _published(network: nn.Module, name: str) -> Path:
    """Returns the weights file that timm publishes."""
    repository = network.pretrained_cfg.get("hf_hub_id")
    if not repository:
        raise InputError(f"backbone.weights: timm publishes no weights for {name}; {WAY_OUT}")
    return published(repository, "timm's")


def _fitted(
    state: dict[str, Tensor], network: nn.Module, name: str, path: Path, heads: tuple[str, ...]
) -> dict[str, Tensor]:
    """Returns the state with timm's names and without classifiers; it fits the network exactly."""
    from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn

    own = network.state_dict()
    state = {key: value for key, value in state.items() if not key.startswith(heads)}
    if isinstance(network, VisionTransformer) and all(
        state[key].numel() == own[key].numel() for key in RESAMPLED if key in state
    ):
        state = checkpoint_filter_fn(state, network, adapt_layer_scale=True)  # to timm's names
    counters = {key: own[key] for key in own if key.endswith(COUNTER)}
    state = {**counters, **state}
    if parts := misfits(state, own):
        raise InputError(
            f"{path}: weights of another architecture: {parts}; expected {name}; give "
            "backbone.weights a file for this model, or set backbone.name to that of the file"
        )
    return state
