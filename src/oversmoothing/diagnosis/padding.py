"""The padding mask that applies to a layer, among those that modules of a running model get."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.adapters.prefix import parents_of
from oversmoothing.diagnosis.calls import named, shapes_of, signature_of
from oversmoothing.errors import InputError

OF_PATCHES = ("pixel_attention_mask", "patch_attention_mask", "patch_valid")
PARAMETERS = {  # of forward, and those of decoders beside an encoder
    "attention_mask": "decoder_attention_mask",
    "src_key_padding_mask": "tgt_key_padding_mask",
    "key_padding_mask": "key_padding_mask",
    **{of_patches: of_patches for of_patches in OF_PATCHES},
}
NAMES = (*PARAMETERS, *PARAMETERS.values())
CACHE = "past_key_values"


class Padding:
    """The padding masks in a running model.

    Args:
        model: the model.
        mask: given by the user for all layers, true for tokens, (B, N); None: those that modules
            get as ``attention_mask``, ``src_key_padding_mask`` and the like.
        packed: whether masks of another form separate sequences and do not mark padding.
    """

    def __init__(self, model: nn.Module, mask: Tensor | None, packed: bool = False) -> None:
        self.model, self.packed = model, packed
        self.mask = None if mask is None else _kept("mask", mask)
        self._given: dict[nn.Module, dict[str, Any]] = {}  # the masks that each module gets
        self._shapes: dict[nn.Module, list[torch.Size]] = {}  # of all arguments of each module

    @contextmanager
    def followed(self, layers: dict[str, nn.Module]) -> Iterator[None]:
        """Context that notes the masks that layers and the modules around them get."""
        around = (m for name, layer in layers.items() for m in self._around(name, layer))
        with ExitStack() as stack:
            for module in dict.fromkeys(around):
                if isinstance(module, nn.MultiheadAttention):  # may hide keys of other tokens
                    continue
                hook = module.register_forward_pre_hook(self._note, with_kwargs=True)
                stack.callback(hook.remove)
            yield

    def keep(self, name: str, layer: nn.Module, shape: tuple[int, ...]) -> Tensor | None:
        """Returns true for tokens of a layer that are not padding, (B, N); None without a mask.

        The innermost mask of the layer's shape counts.

        Args:
            name: of the layer.
            layer: the layer.
            shape: B and N of its tokens.

        Raises:
            InputError: the model gets a mask, and it is not one of booleans or of 0 and 1, (B, N).
        """
        if self.mask is not None:
            return self.mask
        unfit = None
        for module in reversed(self._around(name, layer)):
            inner = module is not self.model and not is_model(module)
            masks = [*self._masks(name, module)]
            for which, mask in masks:
                if which == "patch_valid":  # without the tokens before the patches
                    mask = F.pad(mask, (max(0, shape[1] - mask.shape[1]), 0), value=1)
                if CACHE in self._given[module] and mask.dim() == 2:  # which has the first tokens
                    mask = mask[:, -shape[1] :]
                if mask.shape == shape and not (inner and _adds(which, mask)):
                    return _kept(which, mask)
                unfit = unfit if inner else (which, mask)
            if self._decides(module, masks):
                break
        return None if unfit is None or self.packed else _kept(*unfit)

    def inputs_of(self, name: str) -> list[torch.Size]:
        """Returns the shapes that the innermost model of timm or transformers around a layer gets.

        Its windows and other parts of a sample follow each other along the first axis.
        """
        around = reversed(parents_of(self.model, name).values())
        models = (module for module in around if is_model(module) or _is_of_timm(module))
        return next((self._shapes[module] for module in models if module in self._shapes), [])

    def _around(self, name: str, layer: nn.Module) -> list[nn.Module]:
        return [*parents_of(self.model, name).values(), layer]

    def _note(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        given = named(module.forward, args, kwargs)
        inner = given.get("x")  # of timm, a dictionary of patches
        given = {**inner, **given} if isinstance(inner, Mapping) else given
        self._shapes[module] = shapes_of(given.values())
        self._given[module] = {
            name: given[name] for name in (*NAMES, CACHE) if given.get(name) is not None
        }

    def _masks(self, name: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """Yields the masks that a module gets for a layer, and their names."""
        known = (*signature_of(module.forward).parameters, *self._given.get(module, {}))
        for of_encoder, of_decoder in PARAMETERS.items():
            decodes = "decoder" in name.split(".") or of_encoder not in known
            which = of_decoder if of_decoder in known and decodes else of_encoder
            if isinstance(mask := self._given.get(module, {}).get(which), Tensor):
                yield which, mask.flatten(1) if which in OF_PATCHES else mask

    def _decides(self, module: nn.Module, masks: Sequence[tuple[str, Tensor]]) -> bool:
        """Whether masks of the modules around a module do not apply to its tokens.

        They do if it gets masks that were made of them, (B, 1, N, N) or a dictionary.
        """
        if any(mask.dim() != 2 for _, mask in masks):
            return False
        if isinstance(module, nn.TransformerDecoder | nn.TransformerDecoderLayer):
            return True
        given = self._given.get(module)
        made = any(isinstance((given or {}).get(name), Mapping) for name in NAMES)
        return given is not None and is_model(module) and not made


def is_model(module: nn.Module) -> bool:
    """Whether a module is a model of transformers."""
    return any(kind.__name__ == "PreTrainedModel" for kind in type(module).__mro__)


def _is_of_timm(module: nn.Module) -> bool:
    of_timm = any(kind.__module__.startswith("timm.") for kind in type(module).__mro__)
    return of_timm and hasattr(module, "forward_features")


def _adds(which: str, mask: Tensor) -> bool:
    """Whether a mask is one that blocks of transformers add to their scores."""
    return mask.is_floating_point() and which.endswith("attention_mask")


def _kept(which: str, mask: Tensor) -> Tensor:
    """Returns true for tokens that are not padding."""
    if which.endswith("key_padding_mask"):
        return ~mask if mask.dtype == torch.bool else mask == 0
    if mask.dim() != 2 or mask.is_floating_point() and not ((mask == 0) | (mask == 1)).all():
        raise InputError(
            f"{which}: expected booleans or 0 and 1, (B, N), true for every token that counts, got "
            f"{mask.dtype} {tuple(mask.shape)}; give mask= in this form, or "
            "segments= of packed sequences"
        )
    return mask != 0
