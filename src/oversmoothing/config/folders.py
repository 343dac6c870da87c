"""The folders of YAMLs that a command line can choose from."""

import os
from importlib.util import find_spec
from pathlib import Path

from hydra.core.override_parser.types import Override

_HERE = Path(__file__).parents[3] / "configs"
CONFIGS = Path(os.environ.get("OVERSMOOTHING_CONFIGS") or _HERE).resolve()
_SEARCH_PATH = "hydra.searchpath"


def search_path(overrides: list[Override]) -> list[Path]:
    """Folders that hold configs: ours, then those of ``hydra.searchpath``."""
    given = [o.value() for o in overrides if o.key_or_group == _SEARCH_PATH][:1]
    entries = given[0] if given and isinstance(given[0], list) else []
    folders = [CONFIGS, *(_folder(str(entry)).absolute() for entry in entries)]
    return list(dict.fromkeys(folders))


def options(group: str, folders: list[Path]) -> list[str]:
    """Names of a group's YAMLs; one that two folders have comes twice."""
    return [
        path.relative_to(folder / group).with_suffix("").as_posix()
        for folder in folders
        for path in sorted((folder / group).rglob("*.yaml"))
    ]


def is_group(override: Override, folders: list[Path]) -> bool:
    """Whether an override chooses an option of a group, and sets no key."""
    name = override.key_or_group
    named = override.package is not None or "/" in name
    return named or any((folder / name).is_dir() for folder in folders if "." not in name)


def needed_to_compose(override: Override, folders: list[Path]) -> bool:
    """Whether Hydra must know an override to compose; all others set keys afterwards."""
    name = override.key_or_group
    return override.is_delete() or name == _SEARCH_PATH or is_group(override, folders)


def _folder(entry: str) -> Path:
    """``file://path``, ``pkg://package`` or a path."""
    scheme, _, place = entry.rpartition("://")
    if scheme != "pkg":
        return Path(place)
    try:
        spec = find_spec(place)
    except ModuleNotFoundError:
        spec = None
    return Path(spec.submodule_search_locations[0] if spec else place)
