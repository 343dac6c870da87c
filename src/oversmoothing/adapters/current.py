"""State of the running call that the sites of a model share."""

import threading
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from oversmoothing.adapters.groups import Graphs, Groups, Sentences, recorded
from oversmoothing.errors import InputError


class Current:
    """The groups of tokens of the running call, which all sites of a model share.

    Every thread has its own groups. Gradient checkpointing repeats parts of the forward pass inside
    the backward pass. These parts see the groups of the last call with gradients; if the whole call
    is repeated, they see its groups. Copies start without groups.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._trained: Groups | None = None  # of the last call with gradients
        self._ambiguous = False  # calls with other groups wait for their backward pass
        self._waiting = False
        self._task = -1  # of autograd, the last that repeated a call

    @property
    def groups(self) -> Groups | None:
        """The groups of the call; None if all tokens of a sample are one group.

        Raises:
            InputError: a backward pass repeats one of several calls with different groups.
        """
        if torch.compiler.is_compiling() or (task := torch._C._current_graph_task_id()) == -1:
            return getattr(self._of_thread, "groups", None)
        if getattr(self._of_thread, "task", -1) == task:
            return self._of_thread.groups
        if task != self._task:
            self._task, self._waiting = task, False
        if self._ambiguous:
            raise InputError(
                "attention_mask or batch: gradient checkpointing repeats one of several calls, and "
                "it is not known which; call backward after each of them (others under "
                "torch.no_grad()), or turn checkpointing off"
            )
        return self._trained

    def enter(self, groups: Groups | None, trains: bool) -> None:
        """Sets the groups at the beginning of a call.

        Args:
            groups: of the call.
            trains: whether a backward pass may repeat parts of the call.
        """
        self._of_thread.groups = groups
        if not torch.compiler.is_compiling():
            self._of_thread.task = task = torch._C._current_graph_task_id()
            trains = trains and task == -1
        if trains:
            differs = groups is not None or self._trained is not None
            self._ambiguous = self._waiting and (self._ambiguous or differs)
            self._trained, self._waiting = groups, True

    def leave(self) -> None:
        """Forgets the groups at the end of a call, so that modules called alone do not see them."""
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1:
            self._of_thread.groups = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Current.__init__(self)
        vars(self).update(state)


class Capture:
    """A forward pre-hook that reads the groups of tokens from the arguments of a model.

    A second hook, at the end of the call, forgets them.

    Args:
        current: takes the groups.
    """

    handles: list[RemovableHandle]

    def __init__(self, current: Current) -> None:
        self.current = current

    def groups(self, args: tuple, kwargs: dict) -> Groups | None:
        """Returns the groups of a call; None if all tokens of a sample are one group."""
        raise NotImplementedError

    def attach(self, module: nn.Module) -> None:
        """Registers both hooks at a model."""
        begin = module.register_forward_pre_hook(self, with_kwargs=True)
        self.handles = [begin, module.register_forward_hook(self.leave, always_call=True)]

    def detach(self, module: nn.Module) -> None:
        """Undoes ``attach``."""
        for handle in self.handles:
            handle.remove()

    def leave(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.current.leave()

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        self.current.enter(self.groups(args, kwargs), torch.is_grad_enabled())


class CaptureArgument(Capture):
    """Reads the groups of tokens from one argument.

    Args:
        current: takes the groups.
        read: converts the argument, which may be None, to groups.
        name: of the argument.
        position: of the argument among the parameters of forward.
    """

    def __init__(
        self, current: Current, read: Callable[[Any], Groups | None], name: str, position: int
    ) -> None:
        super().__init__(current)
        self.read, self.name, self.position = read, name, position

    def groups(self, args: tuple, kwargs: dict) -> Groups | None:
        given = args[self.position] if self.position < len(args) else None
        return self.read(kwargs.get(self.name, given))


def capture(
    model: nn.Module, current: Current, read: Callable[[Any], Groups | None], name: str
) -> Capture | None:
    """Returns a hook that reads an argument of a model; None if it has no such argument."""
    names = list(signature(model.forward).parameters)
    return CaptureArgument(current, read, name, names.index(name)) if name in names else None


def sentences(mask: Tensor | None) -> Sentences | None:
    """Reads a padding mask (B, N): true or 1 for tokens; None if nothing is padded.

    Raises:
        InputError: the mask has other dimensions.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise InputError(
            f"attention_mask: expected one for tokens, (B, N), got {got}; aggregators after the "
            "mixing cannot follow other masks"
        )
    if not recorded() and mask.all():
        return None
    return Sentences(mask)


def images(pixels: Any) -> None:
    """Returns None: the patches of an image are one group."""


def graphs(batch: Tensor | None) -> Graphs | None:
    """Reads PyG's vector ``batch``, or that of a ``Data`` object."""
    batch = getattr(batch, "batch", batch)
    if not isinstance(batch, Tensor) or batch.dim() != 1 or batch.is_floating_point():
        return None
    return Graphs(batch)
