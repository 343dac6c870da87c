"""Published weights, from the hub's cache or downloaded, and whether weights fit."""

import os
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import hf_hub_download, try_to_load_from_cache

from oversmoothing.errors import InputError

PUBLISHED = "model.safetensors"  # name of the weights in each repository that is read here
WAY_OUT = "set backbone.weights=PATH to a file of them, or backbone.weights=none to start at random"


def published(repository: str, whose: str) -> Path:
    """The weights of a repository; ``OVERSMOOTHING_OFFLINE=1`` forbids downloads.

    Args:
        whose: for the message.

    Raises:
        InputError: they cannot be had.
    """
    cached = try_to_load_from_cache(repository, PUBLISHED)
    if isinstance(cached, str):
        return Path(cached)
    if os.environ.get("OVERSMOOTHING_OFFLINE") == "1":
        reason = "OVERSMOOTHING_OFFLINE=1 forbids downloads"
    else:
        try:
            return Path(hf_hub_download(repository, PUBLISHED))
        except Exception as error:  # the hub and the HTTP library below have many kinds
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    raise InputError(
        f"{repository}/{PUBLISHED}: {whose} weights cannot be had ({reason}); {WAY_OUT}"
    )


def misfits(missing: Sequence[str], unexpected: Sequence[str], wrong: Sequence[str]) -> str:
    """What does not fit, in words; empty where all does.

    Args:
        missing, unexpected: names of tensors.
        wrong: sentences on tensors of another shape.
    """
    parts = [
        f"{len(keys)} {what} ({keys[0]}, …)"
        for keys, what in [(missing, "missing"), (unexpected, "unexpected")]
        if keys
    ]
    return "; ".join([*parts, *wrong[:1]])
