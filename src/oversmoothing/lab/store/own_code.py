"""Notices changes of a user's own parts, whose code is not in the id of a run."""

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf


def own_code(config: DictConfig) -> str | None:
    """Returns a hash of the files that define a config's parts of no installed package."""
    targets = sorted({*_targets(OmegaConf.to_container(config, resolve=False))})
    files = dict.fromkeys(filter(None, map(_own_file, targets)))
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()[:10] if files else None


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from filter(None, [node.get("_target_")])
        for value in node.values():
            yield from _targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value)


def _own_file(target: str) -> Path | None:
    """Returns the file that defines a class; None if it belongs to this or an installed package."""
    if target.split(".")[0] == "oversmoothing":
        return None
    module = target.rpartition(".")[0]
    try:
        spec = find_spec(module) if module else None
    except (ImportError, ValueError):
        return None
    file = Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return file if file and not {"site-packages", "dist-packages"} & {*file.parts} else None
