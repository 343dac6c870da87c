"""The GCN of ContraNorm's authors, from a checkout of the user.

https://github.com/PKU-ML/ContraNorm, folder gnn: models.DeepGCN and its parts.
"""

import importlib
import importlib.util
import sys
import types
from argparse import Namespace
from pathlib import Path

from reference_gcn import DROPOUT, HIDDEN
from torch import Tensor, nn

from oversmoothing.errors import InputError

OFFICIAL_NORMS = {"none": "None", "layernorm": "None", "pairnorm": "PN", "contranorm": "CN"}


class _Official(nn.Module):
    """The authors' DeepGCN with the interface of `ReferenceGCN`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.layers = [*net.hidden_layers, net.out_layer]

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.net(x, adj)[0]


def official(folder: Path, method: str, dims: list[int], scale: float = 1.0) -> nn.Module:
    """Builds the network of one seed from the authors' code.

    Args:
        folder: ``gnn`` of a checkout.
        method: one of `OFFICIAL_NORMS`.
        dims: as for `ReferenceGCN`.
        scale: s of ContraNorm and PairNorm.

    Raises:
        InputError: the folder does not have this code, or it cannot be imported.
    """
    options = Namespace(
        nlayer=len(dims) - 1,
        hid=HIDDEN,
        dropout=DROPOUT,
        norm_mode=OFFICIAL_NORMS[method],
        norm_scale=scale,
        residual=0,
        use_layer_norm=method != "none",
    )
    return _Official(_official_models(folder).DeepGCN(options, dims[0], dims[-1]))


def _official_models(folder: Path) -> types.ModuleType:
    """Imports models.py; packages that DeepGCN does not use may be missing."""
    if not (folder / "models.py").is_file():
        raise InputError(f"--official: expected a gnn folder with models.py, got {folder}")
    unused = {
        "torch_sparse": ("spmm", "matmul"),
        "torch_scatter": ("scatter_max", "scatter_add"),
        "einops": ("rearrange",),
    }
    for name, members in unused.items():
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = _stand_in(name, members)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("models")
    except ImportError as error:
        raise InputError(f"--official: {folder}/models.py cannot be imported ({error})") from error


def _stand_in(name: str, members: tuple[str, ...]) -> types.ModuleType:
    module = types.ModuleType(name)
    for member in members:
        setattr(module, member, None)
    return module
