"""Hydra's files of configs, read once in a process.

Hydra finds, reads and parses about twenty files for each composition, a third of its time.
"""

import copy
from collections.abc import Callable
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.config_source import ConfigResult


class ReadOnce(ConfigRepository):
    """What a loader of Hydra reads from, with each file found and read once.

    Args:
        hydras: the loader's own.
    """

    def __init__(self, hydras: ConfigRepository) -> None:
        self.sources, self._known = hydras.sources, {}

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self._known = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        return copy.deepcopy(self._once(super().load_config, config_path))

    def config_exists(self, config_path: str) -> bool:
        return self._once(super().config_exists, config_path)

    def group_exists(self, config_path: str) -> bool:
        return self._once(super().group_exists, config_path)

    def _once(self, call: Callable[[str], Any], path: str) -> Any:
        if (key := (call.__name__, path)) not in self._known:
            self._known[key] = call(path)
        return self._known[key]

    def __deepcopy__(self, memo: dict) -> "ReadOnce":
        return copy.copy(self)  # for each composition, which may have folders of its own
