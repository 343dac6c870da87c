"""Exported runs on the Hugging Face hub: ``hf:ORG/NAME``."""

import re
from pathlib import Path

from oversmoothing.errors import InputError, described
from oversmoothing.lab.store.files import FORBIDDEN, offline
from oversmoothing.lab.store.weights import SHARED

PREFIX = "hf:"
FILES = ("config.yaml", SHARED, "metrics.json")


def download(run: str) -> Path:
    """Returns the folder of ``hf:ORG/NAME``, from the hub's cache or downloaded.

    Raises:
        InputError: the name is not of this form, or the run is not in the cache and the download
            failed or ``OVERSMOOTHING_OFFLINE=1`` forbids it.
    """
    name = run.removeprefix(PREFIX)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(f"{run}: expected hf:ORG/NAME, such as hf:someone/wsss-scenes")
    from huggingface_hub import snapshot_download, try_to_load_from_cache  # takes a second

    cached = [try_to_load_from_cache(name, file) for file in FILES]
    if all(isinstance(path, str) for path in cached):
        return Path(str(cached[0])).parent
    if offline():
        reason = FORBIDDEN
    else:
        try:
            return Path(snapshot_download(name, allow_patterns=list(FILES)))
        except Exception as error:  # the hub and its HTTP library may raise any error
            reason = described(error)
    raise InputError(f"{run}: not available ({reason}); give --run a folder that export.py wrote")
