"""Aggregators inside the attention functions of transformers.

The chosen attention modules get a copy of their configuration that names ``mix`` as the attention
function; ``mix`` calls the previous function. The model's own configuration does not change.
"""

import copy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from oversmoothing.adapters.attention import InsideAttention, Replacing
from oversmoothing.adapters.site import Site
from oversmoothing.errors import InputError

FUNCTIONS = ("sdpa", "eager")  # attention functions whose masks ``mix`` understands
ATTENTION = "oversmoothing"  # the name of ``mix`` among transformers' attention functions
SINKS = ("s_aux", "sinks")  # arguments of attention functions


class InsideFunction(InsideAttention):
    """Acts on the product of M and V in every head of an attention of transformers.

    Attributes:
        config: the previous configuration of the attention, which names its attention function.
        causal: whether the model is causal; for functions whose masks ``mix`` does not understand.
    """

    causal: bool | None = None

    def check(self, module: nn.Module) -> None:
        """Accepts every module: a patched forward also calls the attention function."""

    def connect(self, module: nn.Module) -> None:
        self.config = module.config
        module.config = copy.copy(module.config)
        module.config._attn_implementation = {"": ATTENTION}  # leaves parts of it as they are

    def detach(self, module: nn.Module) -> None:
        module.config = self.config
        Site.detach(self, module)

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
            InputError: the mask does not tell which values are seen, the cache is paged, the
                function selects keys, or it cannot show maps that an aggregator changes.
        """
        name = self.config._attn_implementation or "sdpa"
        if name in FUNCTIONS:
            _require_readable(attention_mask)
        else:
            self._require_known(module, name, value.shape[2], options)
        _require_all_keys(module, options)
        function, value = _function(module, name), self.before(value)
        with self._forming(name):
            mixed, weights = function(module, query, key, value, attention_mask, **options)
        causal, N_q = options.get("is_causal"), query.shape[2]
        causal = getattr(module, "is_causal", True) if causal is None else causal
        if name not in FUNCTIONS:  # its padding is that of the model's arguments
            attention_mask, causal = None, bool(self.causal)
        elif causal := causal and name == "sdpa" and attention_mask is None and N_q > 1:
            value = value[:, :, :N_q]  # a static cache ends in empty values
        mixed = self.mix(mixed.transpose(1, 2), value, attention_mask, causal)
        return mixed.transpose(1, 2).contiguous(), weights

    def _forming(self, name: str) -> AbstractContextManager:
        """Returns a context in which an attention function forms its maps if they are read."""
        if not self.reads_maps:
            return nullcontext()
        if name != "sdpa":
            raise InputError(
                f"model: attention function {name} does not show its maps to re-attention; call "
                "model.set_attn_implementation('sdpa')"
            )
        return Replacing(F.scaled_dot_product_attention, self.product)

    def _require_known(
        self, module: nn.Module, name: str, num_tokens: int, options: dict[str, Any]
    ) -> None:
        """Checks that the tokens that each token sees are known, for a function such as flash."""
        window = options.get("sliding_window") or getattr(module, "sliding_window", None)
        packed = options.get("cu_seq_lens_q") is not None
        if self.current is None or self.causal is None:
            raise InputError(
                f"model: attention function {name} has masks that aggregators cannot read; call "
                "model.set_attn_implementation before oversmoothing.apply, which then reads the "
                "model's own arguments, or choose sdpa"
            )
        if packed or (isinstance(window, int) and num_tokens > window):
            raise InputError(
                f"model: attention function {name} gets packed texts or a sliding window, which "
                "aggregators cannot read; call model.set_attn_implementation('sdpa')"
            )


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
    if name != "eager":
        return ALL_ATTENTION_FUNCTIONS[name]
    return of_file(module, "eager_attention_forward")


def _require_all_keys(module: nn.Module, options: dict[str, Any]) -> None:
    """Checks that an attention function gets the values of all keys, and no sink."""
    if options.get("cache") is not None:
        raise InputError("cache: aggregators cannot follow a paged cache; use model.generate")
    if options.get("indices") is not None:
        raise InputError(
            f"model: {type(module).__name__} selects its keys inside the attention "
            "function, where aggregators cannot act; choose one that acts after the attention"
        )
    if any(options.get(name) is not None for name in SINKS):
        raise InputError(with_sinks(module))


def with_sinks(attention: nn.Module) -> str:
    """Says that no aggregator can act inside an attention with sinks."""
    return (
        f"model: {type(attention).__name__} has attention sinks, so the rows of its matrix "
        "sum to less than 1; choose a method that acts after the mixing"
    )


def _require_readable(mask: Any) -> None:
    if mask is not None and not (isinstance(mask, Tensor) and mask.dim() == 4):
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"attention_mask: expected one for queries and keys, (B, 1, N_q, N), got {got}; "
            "set the attention function back to sdpa or eager"
        )
