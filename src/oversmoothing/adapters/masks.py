"""Masks in the call of a module, for the sites in it: padding, and tokens hidden from others."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from inspect import signature
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from oversmoothing.adapters.attention import seen
from oversmoothing.adapters.calls import Capture, Groups, Sentences, recorded
from oversmoothing.adapters.prefix import parents_of
from oversmoothing.adapters.site import (
    AfterModule,
    BeforeModule,
    Held,
    Parent,
    Placed,
    Site,
    placed_in,
)
from oversmoothing.errors import InputError

PADDING = ("tgt_key_padding_mask", "src_key_padding_mask", "key_padding_mask")  # true: hidden
HIDING = ("attn_mask", "tgt_mask", "src_mask", "mask", "tgt_is_causal", "is_causal")
OF_TOKENS = "attention_mask"  # true for tokens, (B, N)


def sentences(mask: Tensor | None) -> Sentences | None:
    """Reads a padding mask (B, N) or (N,): true or 1 for tokens; None if nothing is padded.

    Raises:
        InputError: the mask has other dimensions.
    """
    if mask is None:
        return None
    if isinstance(mask, Tensor) and mask.dim() == 1:
        mask = mask[None]
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"attention_mask: expected one for tokens, (B, N), got {got}; aggregators after the "
            "mixing cannot follow other masks: apply them to the whole model, not to a part of it"
        )
    if not recorded() and mask.all():
        return None
    return Sentences(mask)


def hidden(mask: Tensor) -> Tensor:
    """Returns true for what a mask of torch's attention hides; additive ones need not have −∞."""
    return mask if mask.dtype == torch.bool else ~seen(mask)


def hides(mask: Any) -> bool:
    """Whether a mask, or a flag, hides some tokens from some; masks are true for either."""
    if not isinstance(mask, Tensor):
        return mask is True
    return recorded() or bool(hidden(mask).any()) and not bool(hidden(mask).all())


def require_shown(unfit: Sequence[str], given: dict[str, Any]) -> None:
    """Checks that a call hides no tokens that methods, by their names, show to each."""
    for name, mask in given.items() if unfit else ():
        if hides(mask):
            raise InputError(
                f"{name}: {unfit[0]} shows all tokens to each, and this hides some; choose a "
                "method that can be causal, for example centered or layernorm, or give padding as "
                "key_padding_mask if the model takes it"
            )


def taken(module: nn.Module) -> list[str]:
    """Returns the names of masks of its own tokens that a module takes."""
    takes = signature(module.forward).parameters
    names = [name for name in (*PADDING, *HIDING, OF_TOKENS) if name in takes]
    if not isinstance(module, nn.TransformerEncoder | nn.TransformerDecoder):
        names = [name for name in names if name != "mask"]  # of any meaning
    of_target = any(name.startswith("tgt_") for name in names)
    return [name for name in names if not (of_target and name.startswith("src_"))]


class Masks(Capture):
    """Notes the masks in a running call of a module, for the sites in it."""

    def __init__(self, module: nn.Module) -> None:
        self.names, self.taken = list(signature(module.forward).parameters), taken(module)
        self.held, self.gave = Held(), False  # whether the last call had masks

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        given = dict(zip(self.names, args)) | kwargs
        found = {name: given.get(name) for name in self.taken}
        masks = {
            name: mask for name, mask in found.items() if mask is not None and mask is not False
        }
        self.gave = bool(masks)
        self.held.set(masks)

    def leave(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.held.set(None)

    @staticmethod
    def groups(site: Site) -> Groups | None:
        """Returns the padding in the running call of a module around a site; None: there is none.

        Raises:
            InputError: the call hides tokens from others, to which an aggregator would show them,
                or it is over, and a backward pass repeats a part of it.
        """
        running = (masks.held.get() for masks in site.around)
        given = next((masks for masks in running if masks is not None), None)
        repeats = not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
        if given is None and repeats and any(masks.gave for masks in site.around):
            raise InputError(
                "model: gradient checkpointing repeats a part of a layer without its mask; "
                "checkpoint the whole layer, or turn it off"
            )
        given = dict(given or {})
        padding = [~hidden(given.pop(name)) for name in PADDING if name in given]
        if (mask := given.get(OF_TOKENS)) is not None and mask.dim() == 2:
            padding.append(given.pop(OF_TOKENS))
        require_shown([type(own).__name__ for own in site if not own.tokenwise], given)
        return sentences(padding[0]) if padding else None


class Unseen(Masks):
    """Warns once if a module hides tokens that a method outside of it counts."""

    def __init__(self, module: nn.Module, method: str, where: str) -> None:
        super().__init__(module)
        self.method, self.where, self.told = method, where, False

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        super().__call__(module, args, kwargs)
        if not self.told and not recorded() and (names := [*filter(self._hides, self.taken)]):
            self.told = True
            warnings.warn(
                f"{self.method} at {self.where} does not see {names[0]} of {type(module).__name__} "
                "and counts the tokens that it hides; give inputs without padding, or leave where= "
                "out",
                stacklevel=2,
            )

    def _hides(self, name: str) -> bool:
        return hides(self.held.get().get(name))


@contextmanager
def apart(model: nn.Module) -> Iterator[None]:
    """Context whose calls change nothing for those before, whose backward pass may come."""
    with ExitStack() as stack:
        hooks = [place.site for place in placed_in(model)]
        for current in {getattr(hook, "current", None) for hook in hooks} - {None}:
            stack.enter_context(current.apart())
        for hook in hooks:
            if isinstance(hook, Masks):
                stack.callback(setattr, hook, "gave", hook.gave)
        yield


def around(library: ModuleType | None, model: nn.Module, placed: Iterable[Placed]) -> list[Placed]:
    """Tells sites before and after modules what holds these, and which hooks read their masks.

    The adapter of a library may read all masks itself (``READS_MASKS``).

    Returns:
        The hooks.
    """
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    takes = {module for module in names if taken(module)}
    found: dict[nn.Module, Masks] = {}
    for module, site in placed:
        if not isinstance(site, BeforeModule | AfterModule):
            continue
        site.parent = Parent(_around(model, names[module][0])[-1], names[module][0])
        if getattr(library, "READS_MASKS", False) or site.tokenwise:
            continue
        for name in names[module]:  # several, if blocks share the module
            parents = _around(model, name)
            near = [*parents, *[module] * isinstance(site, AfterModule)]
            if taking := [m for m in near if m in takes]:
                masks = found.setdefault(taking[-1], Masks(taking[-1]))
                site.around = [*site.around, masks]
            elif getattr(site, "layout", None) in (None, "BNC", "NBC"):
                what = type(site[0]).__name__, name
                found = {m: Unseen(m, *what) for m in _beside(parents, takes)} | found
    return [Placed(module, hook) for module, hook in found.items()]


def _around(model: nn.Module, name: str) -> list[nn.Module]:
    return [*parents_of(model, name).values()]


def _beside(parents: list[nn.Module], takes: set[nn.Module]) -> list[nn.Module]:
    """Returns the outer modules that take masks, in the innermost one around a place with some."""
    for parent in reversed(parents):
        if some := [m for m in parent.modules() if m in takes]:
            inner = {m for outer in some for m in outer.modules() if m is not outer}
            return [m for m in some if m not in inner]
    return []
