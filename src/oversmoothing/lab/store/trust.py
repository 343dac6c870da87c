"""Checks the names in a config of unknown origin before anything is built.

Building a config calls the classes and functions named by ``_target_``, and resolving it evaluates
its interpolations. So a config that was not composed here, such as that of a run folder, may only
name parts of this package, and may only use interpolations of the package's own configs.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.checkout import CONFIGS
from oversmoothing.lab.store.identity import part_targets

LARGEST, DEEPEST = 100_000, 10  # bytes and levels of a config; ours have 3,000 and 4
WAY_OUT = "read the file, and add --trust if you trust it"


def read_config(path: Path, trust: bool = False) -> dict[str, Any]:
    """Reads a composed config, interpolations unresolved, without building or importing anything.

    Args:
        path: YAML file.
        trust: allow any class and function.

    Raises:
        InputError: the file is not a config, is too large, or names code of other packages.
    """
    plain = _read(path)
    if not trust:
        for problem in _foreign(plain):
            raise InputError(f"{path}: {problem}; {WAY_OUT}")
    return plain


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        text = _bounded(content)
        plain = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
        if not isinstance(plain, dict) or not plain:
            raise ValueError("it holds no keys")
        return plain
    except Exception as error:  # parsers may raise any error for a damaged file
        why = reason_of(error)[:100]
        raise InputError(f"{path}: cannot be read as a run's config ({why})") from error


def _bounded(content: bytes) -> str:
    """Returns the text of a YAML file; refuses large sizes, deep levels and aliases."""
    if len(content) > LARGEST:
        raise ValueError(f"larger than {LARGEST:,} bytes")
    text, depth = content.decode(), 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has aliases")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"deeper than {DEEPEST} levels")
    return text


def _foreign(node: Any) -> Iterator[str]:
    """Yields a line for everything that a config must not contain."""
    if isinstance(node, str) and "${" in node and node not in _interpolations():
        yield f"interpolation {node!r} is none of this package's"
    if isinstance(node, dict):
        for key in node:
            if str(key).startswith("_") and key not in ("_target_", "_partial_"):
                yield f"key {key!r} would change how parts are built"
        target = node.get("_target_")
        if "_target_" in node and (not isinstance(target, str) or target not in own_targets()):
            yield f"names {target}, which is not part of oversmoothing and could run any code"
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _foreign(child)


@cache
def own_targets() -> frozenset[str]:
    """Returns the current and former dotted names of all parts of this package."""
    return frozenset(re.findall(r"^ *_target_: *(oversmoothing\.[\w.]+)", _texts(), re.M)) | set(
        part_targets()
    )


@cache
def _interpolations() -> frozenset[str]:
    return frozenset(re.findall(r"^ *\w+: *(\S*\$\{\S+)", _texts(), re.M))


@cache
def _texts() -> str:
    """Returns the concatenated YAML files of the package."""
    return "\n".join(path.read_text("utf-8") for path in sorted(CONFIGS.rglob("*.yaml")))
