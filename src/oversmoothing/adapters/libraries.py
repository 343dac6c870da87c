"""The libraries in whose models the places for aggregators are known."""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from torch import nn

LIBRARIES = {  # library -> the module here that knows its models
    "torch_geometric": "pyg_models",
    "transformers": "hf_models",
    "timm": "timm_models",
}


def library_of(blocks: Iterable[nn.Module]) -> ModuleType | None:
    """Returns the adapter for the library that the modules in the blocks come from."""
    kinds = {
        kind for block in blocks for module in block.modules() for kind in type(module).__mro__
    }
    homes = {kind.__module__.partition(".")[0] for kind in kinds}
    known = [module for library, module in LIBRARIES.items() if library in homes]
    return import_module(f"oversmoothing.adapters.{known[0]}") if known else None
