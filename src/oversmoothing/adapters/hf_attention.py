"""Aggregators inside the attention of transformers, as one of its attention functions.

They use transformers' ``AttentionInterface``. The chosen attention modules get a copy of their
configuration that names ``mix`` as the attention function; ``mix`` calls the previous function. The
model's own configuration does not change.
"""

import copy
import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from oversmoothing.adapters.attention import InsideAttention
from oversmoothing.errors import InputError

FUNCTIONS = ("sdpa", "eager")  # attention functions whose masks ``mix`` understands
ATTENTION = "oversmoothing"  # the name of ``mix`` among transformers' attention functions


class InsideFunction(InsideAttention):
    """Acts on the product of M and V in every head of an attention of transformers.

    Attributes:
        config: the previous configuration of the attention, which names its attention function.
    """

    def check(self, module: nn.Module) -> None:
        """Accepts every module: a patched forward calls the attention function, too."""

    def connect(self, module: nn.Module) -> None:
        self.config = module.config
        module.config = copy.copy(module.config)
        module.config._attn_implementation = {"": ATTENTION}  # leaves parts of it as they are

    def detach(self, module: nn.Module) -> None:
        module.config = self.config
        delattr(module, self.name)

    def attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes attention by the module's own function, and applies the aggregators.

        Raises:
            InputError: the mask does not tell which values are seen.
        """
        _require_readable(attention_mask, options.get("cache"))
        if options.get("indices") is not None:
            raise InputError(
                f"model: {type(module).__name__} selects its keys inside the attention "
                "function, where aggregators cannot act; choose one that acts after the attention"
            )
        function = _function(module, self.config._attn_implementation or "sdpa")
        mixed, weights = function(module, query, key, value, attention_mask, **options)
        causal = options.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        N_q = query.shape[2]
        causal = causal and attention_mask is None and N_q > 1
        if causal:  # a static cache ends in empty values
            value = value[:, :, :N_q]
        mixed = self.mix(mixed.transpose(1, 2), value, attention_mask, causal)
        return mixed.transpose(1, 2).contiguous(), weights


class InsteadOfFunction(InsideFunction):
    """Acts instead of an attention whose query, key and value are the input of the layer."""

    name = "instead"

    def attend(self, module: nn.Module, query: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        x = query.transpose(1, 2)
        return self.act(x.flatten(2)).view(x.shape), None


def mix(module: nn.Module, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
    """Computes attention with aggregators; an attention function for transformers.

    Shapes: query (B, heads, N_q, C), key, value (B, heads or fewer, N, C) -> (B, N_q, heads, C).
    """
    site = module.inside if hasattr(module, "inside") else module.instead
    return site.attend(module, *args, **options)


AttentionInterface.register(ATTENTION, mix)


def of_file(module: nn.Module, name: str) -> Any:
    """Returns a name defined in the file of a module's class or of a base class; None if absent."""
    homes = (vars(sys.modules[kind.__module__]) for kind in type(module).__mro__)
    return next((home[name] for home in homes if name in home), None)


def _function(module: nn.Module, name: str) -> Callable:
    """Returns the attention function of a name; ``eager`` is that of the model's own file."""
    require_function(name)
    if name != "eager":
        return ALL_ATTENTION_FUNCTIONS[name]
    return of_file(module, "eager_attention_forward")


def require_function(name: str) -> None:
    """Raises InputError for an attention function with masks that aggregators cannot read."""
    if name not in FUNCTIONS:
        raise InputError(
            f"model: attention function {name} has masks that aggregators cannot read; "
            "call model.set_attn_implementation('sdpa') first"
        )


def _require_readable(mask: Any, cache: Any) -> None:
    if cache is not None:
        raise InputError("cache: aggregators cannot follow a paged cache; use model.generate")
    if mask is not None and not (isinstance(mask, Tensor) and mask.dim() == 4):
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"attention_mask: expected one for queries and keys, (B, 1, N_q, N), got {got}; "
            "set the attention function back to sdpa or eager"
        )
