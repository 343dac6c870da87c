"""Gets published weights from the Hugging Face hub, and describes weights that do not fit."""

from collections.abc import Container, Mapping
from pathlib import Path

from torch import Tensor

from oversmoothing.errors import InputError, described
from oversmoothing.lab.store.files import FORBIDDEN, offline

PUBLISHED = "model.safetensors"  # name of the weights file in a repository
WAY_OUT = "set backbone.weights=PATH to load a file, or backbone.weights=none for random weights"


def published(repository: str, whose: str) -> Path:
    """Returns the weights file of a repository, from the hub's cache or downloaded.

    Args:
        repository: name on the hub.
        whose: who publishes the weights, for the error message.

    Raises:
        InputError: the file is not in the cache, and the download failed or
            ``OVERSMOOTHING_OFFLINE=1`` forbids it.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache  # takes a second

    cached = try_to_load_from_cache(repository, PUBLISHED)
    if isinstance(cached, str):
        return Path(cached)
    if offline():
        reason = FORBIDDEN
    else:
        try:
            return Path(hf_hub_download(repository, PUBLISHED))
        except Exception as error:  # the hub and its HTTP library may raise any error
            reason = described(error)
    raise InputError(
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
