"""Published weights from the Hugging Face hub, and the words for weights that do not fit."""

import os
from collections.abc import Sequence
from pathlib import Path

from oversmoothing.errors import InputError

PUBLISHED = "model.safetensors"  # name of the weights file in a repository
WAY_OUT = "set backbone.weights=PATH to load a file, or backbone.weights=none for random weights"


def published(repository: str, whose: str) -> Path:
    """Returns the weights file of a repository, from the hub's cache or downloaded.

    Args:
        repository: name on the hub.
        whose: who publishes the weights, for the error message.

    Raises:
        InputError: not in the cache, and the download failed or ``OVERSMOOTHING_OFFLINE=1``
            forbids it.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache  # takes a second

    cached = try_to_load_from_cache(repository, PUBLISHED)
    if isinstance(cached, str):
        return Path(cached)
    if os.environ.get("OVERSMOOTHING_OFFLINE") == "1":
        reason = "OVERSMOOTHING_OFFLINE=1 forbids downloads"
    else:
        try:
            return Path(hf_hub_download(repository, PUBLISHED))
        except Exception as error:  # the hub and its HTTP library raise many types
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    raise InputError(
        f"{repository}/{PUBLISHED}: {whose} weights are not available ({reason}); {WAY_OUT}"
    )


def misfits(missing: Sequence[str], unexpected: Sequence[str], wrong: Sequence[str]) -> str:
    """Describes which weights do not fit; returns an empty string if all fit.

    Args:
        missing: names of tensors that the file lacks.
        unexpected: names of tensors that the network lacks.
        wrong: descriptions of tensors whose shape differs.
    """
    parts = [
        f"{len(keys)} {what} ({keys[0]}, …)"
        for keys, what in [(missing, "missing"), (unexpected, "unexpected")]
        if keys
    ]
    return "; ".join([*parts, *wrong[:1]])
