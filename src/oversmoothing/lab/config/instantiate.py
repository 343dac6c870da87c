"""Builds objects from the nodes of a config."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from oversmoothing.errors import InputError


def build(node: DictConfig, **arguments: Any) -> Any:
    """Builds the ``_target_`` of a node; raises its InputError, not Hydra's exception around it."""
    try:
        return instantiate(node, _convert_="all", **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from None
        raise
