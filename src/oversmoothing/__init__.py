"""Methods against oversmoothing in deep attention and graph networks.

``diagnose`` measures how alike tokens or nodes are after every layer of a model. ``apply`` puts a
method into a model, and ``remove`` takes it out again. Every method is a module, and every measure
a function of ``metrics``.

Modules are imported at their first use, so that a command line can be checked without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oversmoothing import metrics as metrics
    from oversmoothing.adapters.apply import apply as apply
    from oversmoothing.adapters.apply import remove as remove
    from oversmoothing.adapters.apply import restore as restore
    from oversmoothing.adapters.recipe import recipe as recipe
    from oversmoothing.aggregators.attn_scale import AttnScale as AttnScale
    from oversmoothing.aggregators.base import After as After
    from oversmoothing.aggregators.base import Aggregator as Aggregator
    from oversmoothing.aggregators.base import Context as Context
    from oversmoothing.aggregators.base import Inside as Inside
    from oversmoothing.aggregators.base import Instead as Instead
    from oversmoothing.aggregators.batchnorm import BatchNorm as BatchNorm
    from oversmoothing.aggregators.centered import Centered as Centered
    from oversmoothing.aggregators.contranorm import ContraNorm as ContraNorm
    from oversmoothing.aggregators.contranorm_d import ContraNormD as ContraNormD
    from oversmoothing.aggregators.diffgroupnorm import DiffGroupNorm as DiffGroupNorm
    from oversmoothing.aggregators.drop_edge import DropEdge as DropEdge
    from oversmoothing.aggregators.drop_message import DropMessage as DropMessage
    from oversmoothing.aggregators.drop_node import DropNode as DropNode
    from oversmoothing.aggregators.em import EM as EM
    from oversmoothing.aggregators.external import External as External
    from oversmoothing.aggregators.external_multihead import ExternalMultiHead as ExternalMultiHead
    from oversmoothing.aggregators.feat_scale import FeatScale as FeatScale
    from oversmoothing.aggregators.gated_attention import GatedAttention as GatedAttention
    from oversmoothing.aggregators.graphnorm import GraphNorm as GraphNorm
    from oversmoothing.aggregators.half_hop import HalfHop as HalfHop
    from oversmoothing.aggregators.layernorm import LayerNorm as LayerNorm
    from oversmoothing.aggregators.meannorm import MeanNorm as MeanNorm
    from oversmoothing.aggregators.neutreno import NeuTRENO as NeuTRENO
    from oversmoothing.aggregators.nodenorm import NodeNorm as NodeNorm
    from oversmoothing.aggregators.pairnorm import PairNorm as PairNorm
    from oversmoothing.aggregators.re_attention import ReAttention as ReAttention
    from oversmoothing.aggregators.rezero import ReZero as ReZero
    from oversmoothing.aggregators.self_attention import SelfAttention as SelfAttention
    from oversmoothing.aggregators.shaped_attention import ShapedAttention as ShapedAttention
    from oversmoothing.aggregators.skip_connections import InitialResidual as InitialResidual
    from oversmoothing.aggregators.skip_connections import Jumping as Jumping
    from oversmoothing.aggregators.skip_connections import Residual as Residual
    from oversmoothing.aggregators.value_residual import ValueResidual as ValueResidual
    from oversmoothing.diagnosis.callbacks import LightningCallback as LightningCallback
    from oversmoothing.diagnosis.callbacks import Monitor as Monitor
    from oversmoothing.diagnosis.callbacks import TrainerCallback as TrainerCallback
    from oversmoothing.diagnosis.callbacks import layer_metrics as layer_metrics
    from oversmoothing.diagnosis.diagnose import diagnose as diagnose
    from oversmoothing.diagnosis.report import Report as Report
    from oversmoothing.errors import InputError as InputError

__version__ = "0.2.0"

_HOMES = {  # where each public name is defined
    "adapters.apply": "apply remove restore",
    "adapters.recipe": "recipe",
    "aggregators.attn_scale": "AttnScale",
    "aggregators.base": "After Aggregator Context Inside Instead",
    "aggregators.batchnorm": "BatchNorm",
    "aggregators.centered": "Centered",
    "aggregators.contranorm": "ContraNorm",
    "aggregators.contranorm_d": "ContraNormD",
    "aggregators.diffgroupnorm": "DiffGroupNorm",
    "aggregators.drop_edge": "DropEdge",
    "aggregators.drop_message": "DropMessage",
    "aggregators.drop_node": "DropNode",
    "aggregators.em": "EM",
    "aggregators.external": "External",
    "aggregators.external_multihead": "ExternalMultiHead",
    "aggregators.feat_scale": "FeatScale",
    "aggregators.gated_attention": "GatedAttention",
    "aggregators.graphnorm": "GraphNorm",
    "aggregators.half_hop": "HalfHop",
    "aggregators.layernorm": "LayerNorm",
    "aggregators.meannorm": "MeanNorm",
    "aggregators.neutreno": "NeuTRENO",
    "aggregators.nodenorm": "NodeNorm",
    "aggregators.pairnorm": "PairNorm",
    "aggregators.re_attention": "ReAttention",
    "aggregators.rezero": "ReZero",
    "aggregators.self_attention": "SelfAttention",
    "aggregators.shaped_attention": "ShapedAttention",
    "aggregators.skip_connections": "InitialResidual Jumping Residual",
    "aggregators.value_residual": "ValueResidual",
    "diagnosis.callbacks": "LightningCallback Monitor TrainerCallback layer_metrics",
    "diagnosis.diagnose": "diagnose",
    "diagnosis.report": "Report",
    "errors": "InputError",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [*_HOME, "metrics", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module(f"{__name__}.metrics")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
