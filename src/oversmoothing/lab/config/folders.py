"""The folders of YAML files that a command line can choose from."""

import os
from importlib.util import find_spec
from pathlib import Path

from hydra.core.override_parser.types import Override

from oversmoothing.lab.store import files

CONFIGS = Path(os.environ.get("OVERSMOOTHING_CONFIGS") or files.CONFIGS).resolve()
SEARCH_PATH = "hydra.searchpath"


def search_path(overrides: list[Override]) -> list[Path]:
    """Returns the folders of configs: the package's own, then those in ``hydra.searchpath``."""
    given = [o.value() for o in overrides if o.key_or_group == SEARCH_PATH][:1]
    entries = given[0] if given and isinstance(given[0], list) else []
    folders = [CONFIGS, *(_folder(str(entry)).absolute() for entry in entries)]
    return list(dict.fromkeys(folders))


def options(group: str, folders: list[Path]) -> list[str]:
    """Lists the names of a group's YAML files; a name in two folders is listed twice."""
    return [
        path.relative_to(folder / group).with_suffix("").as_posix()
        for folder in folders
        for path in sorted((folder / group).rglob("*.yaml"))
    ]


def _folder(entry: str) -> Path:
    """Returns the folder of ``file://path``, ``pkg://package`` or a plain path."""
    scheme, _, place = entry.rpartition("://")
    if scheme != "pkg":
        return Path(place)
    try:
        spec = find_spec(place)
    except ModuleNotFoundError:
        spec = None
    return Path(spec.submodule_search_locations[0] if spec else place)
