"""What the sites of a model know about the running call: which tokens they must not mix.

Tokens of one call are in groups: sentences with padding, images, or the graphs of a batch. A hook
at the model reads the groups from its arguments (``Capture``), all sites share them (``Current``),
and each group is aggregated apart (``Sentences``, ``Graphs``).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from inspect import signature
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from oversmoothing.aggregators.base import Aggregator, Context, require_followed
from oversmoothing.errors import InputError


class Groups(Protocol):
    """How to apply an aggregator to every group of tokens of a batch."""

    def apply(self, aggregator: nn.Module, *tensors: Tensor, context: Context) -> Tensor:
        """Applies an aggregator to each group of tensors (..., N, C)."""
        ...


class Sentences:
    """The tokens of sentences with padding.

    Aggregators that read masks get all sentences at once. For others, sentences are grouped by
    length, and each group is aggregated without its padding.

    Args:
        mask: true for tokens, false for padding, which may be anywhere, (B, N).
    """

    def __init__(self, mask: Tensor) -> None:
        mask = mask.bool()
        self.shape, self.lengths = mask.shape, mask.sum(dim=1)
        # Tokens first, padding after them.
        self.mask = torch.arange(mask.shape[1], device=mask.device) < self.lengths[:, None]
        in_order = not recorded() and bool((self.mask == mask).all())
        self.order = None if in_order else (~mask).long().argsort(dim=1, stable=True)

    def apply(self, aggregator: nn.Module, *tensors: Tensor, context: Context) -> Tensor:
        """Applies an aggregator to tensors (B, ..., N, C); padding keeps the values it had.

        Raises:
            InputError: the tensors have other sizes than the mask.
        """
        if tensors[0].dim() == 2 and self.shape[0] == 1:  # one sequence without a batch
            return self.apply(aggregator, *(x[None] for x in tensors), context=context)[0]
        if (tensors[0].shape[0], tensors[0].shape[-2]) != self.shape:
            raise InputError(
                f"attention_mask: the one of the model's last call is {tuple(self.shape)}, and "
                f"tokens are {tuple(tensors[0].shape)}; it needs one entry for each token, so call "
                "the whole model, not a part of it; if its layers have other tokens than its mask, "
                "give inputs without padding and no mask"
            )
        if (order := self.order) is not None:
            tensors = tuple(_take(x, order) for x in tensors)
            context = _of_tokens(context, self.shape[1], lambda x: _take(x, order))
        at_once = all(m.reads_mask for m in aggregator.modules() if isinstance(m, Aggregator))
        out = (self._at_once if at_once else self._by_length)(aggregator, tensors, context)
        return out if self.order is None else _take(out, self.order.argsort(dim=1))

    def _at_once(
        self, aggregator: nn.Module, tensors: tuple[Tensor, ...], context: Context
    ) -> Tensor:
        B, N = self.shape
        first, *values = tensors
        mask = self.mask.view(B, *[1] * (first.dim() - 2), N)
        out = aggregator(first, *values, replace(context, mask=mask))
        return torch.where(mask.mT, out, first.to(out.dtype))

    def _by_length(
        self, aggregator: nn.Module, tensors: tuple[Tensor, ...], context: Context
    ) -> Tensor:
        require_followed("attention_mask: the number of tokens of a sentence")
        order = self.lengths.argsort(stable=True)
        found, counts = self.lengths.unique(return_counts=True)
        pieces = []
        for rows, length in zip(order.split(counts.tolist()), found.tolist()):
            some = partial(_first_tokens, rows, length)
            parts, of_rows = map(some, tensors), _of_tokens(context, self.shape[1], some)
            piece = aggregator(*parts, of_rows) if length else next(parts)
            rest = tensors[0][rows][..., length:, :].to(piece.dtype)
            pieces.append(torch.cat([piece, rest], dim=-2))
        return torch.cat(pieces)[order.argsort()]


class Graphs:
    """The nodes of several graphs; graphs with the same number of nodes are aggregated at once.

    Aggregators of statistics of the batch get all graphs at once.

    Args:
        batch: index of the graph of every node, (N,).
    """

    def __init__(self, batch: Tensor) -> None:
        self.batch, self.num_nodes = batch, batch.shape[0]

    @cached_property
    def nodes(self) -> list[Tensor]:
        """The nodes of all graphs of one size, (graphs, nodes) for each size."""
        require_followed("batch: the number of nodes of a graph")
        _, graph, sizes = self.batch.unique(return_inverse=True, return_counts=True)
        alike: dict[int, list[Tensor]] = {}
        for own in graph.argsort(stable=True).split(sizes.tolist()):
            alike.setdefault(len(own), []).append(own)
        return [torch.stack(group) for group in alike.values()]

    @cached_property
    def order(self) -> Tensor:
        """The place of every node in ``nodes``."""
        return torch.cat([self.batch.new_empty(0), *map(torch.flatten, self.nodes)]).argsort()

    def apply(self, aggregator: nn.Module, *tensors: Tensor, context: Context) -> Tensor:
        """Applies an aggregator to tensors (..., N, C).

        Raises:
            InputError: the tensors have another number of nodes than the batch.
        """
        if tensors[0].shape[-2] != self.num_nodes:
            raise InputError(
                f"batch: the one of the model's last call has {self.num_nodes} nodes, and tokens "
                f"are {tuple(tensors[0].shape)}; aggregators cannot follow pooling of nodes"
            )
        if getattr(aggregator, "of_batch", False):
            return aggregator(*tensors, context).to(tensors[0].dtype)
        if not self.nodes:
            return tensors[0]
        pieces = []
        for nodes in self.nodes:
            for some in nodes.split(1) if context.edges is not None else [nodes]:
                of_group = _of_nodes(context, some, self.num_nodes)
                parts = (_by_graph(x, some) for x in tensors)
                pieces.append(aggregator(*parts, of_group).movedim(0, -3))
        found = torch.cat([piece.flatten(-3, -2) for piece in pieces], dim=-2)
        return found[..., self.order, :].to(tensors[0].dtype)


def recorded() -> bool:
    """Whether the call is recorded (traced, compiled or exported) for other inputs.

    If so, what it does must not depend on the values of its inputs.
    """
    return torch.jit.is_tracing() or torch.compiler.is_compiling()


def _take(x: Tensor, order: Tensor) -> Tensor:
    """Reorders tokens. Shapes: x (B, ..., N, C), order (B, N) -> (B, ..., N, C)."""
    index = order.view(order.shape[0], *[1] * (x.dim() - 3), -1, 1)
    return x.gather(-2, index.expand(x.shape))


def _first_tokens(rows: Tensor, length: int, x: Tensor) -> Tensor:
    """Returns the first tokens of some samples. Shapes: (B, ..., N, C) -> (b, ..., length, C)."""
    return x[rows][..., :length, :]


def _of_tokens(context: Context, N: int, change: Callable[[Tensor], Tensor]) -> Context:
    """Changes what a context has of N tokens: the inputs and outputs of layers."""
    inputs, outputs = (
        tuple(change(x) if x.shape[-2] == N else x for x in of)
        for of in (context.inputs, context.outputs)
    )
    return replace(context, inputs=inputs, outputs=outputs)


def _by_graph(x: Tensor, nodes: Tensor) -> Tensor:
    """Returns the tokens of some graphs, whose heads stay beside them.

    Shapes: x (..., N, C), nodes (graphs, n) -> (graphs, ..., n, C).
    """
    return x[..., nodes, :].movedim(-3, 0)


def _of_nodes(context: Context, nodes: Tensor, num_nodes: int) -> Context:
    """Returns the context of some graphs, nodes (graphs, n); with edges, of one graph only."""
    row_sum = None if context.row_sum is None else _by_graph(context.row_sum, nodes)
    context = _of_tokens(context, num_nodes, partial(_by_graph, nodes=nodes))
    if context.edges is None:
        return replace(context, row_sum=row_sum)
    N = nodes.shape[1]
    new = torch.full((context.num_nodes or 0,), -1, device=nodes.device)
    new[nodes[0]] = torch.arange(N, device=nodes.device)
    edges = new[context.edges]
    edges = edges[:, (edges >= 0).all(dim=0)]
    return replace(context, row_sum=row_sum, edges=edges, num_nodes=N)


class Layers(NamedTuple):
    """What the layers of a call share.

    Args:
        inputs, outputs: of the layers so far.
        drawn: what was drawn for edges.
        values: of the first layer of every stack.
        trains: whether the call began with gradients.
    """

    inputs: list[Tensor]
    outputs: list[Tensor]
    drawn: dict[int, tuple[Tensor, list[Tensor]]]
    values: dict[str, Tensor]
    trains: bool


class Pending:
    """A call with some groups, whose backward pass may come."""

    def __init__(self, groups: Groups | None = None) -> None:
        self.groups = groups


def _begins(pending: "WeakSet[Pending]", call: Any, gradient: Tensor) -> None:
    """Removes a call at the end of the backward pass that has reached an output of it."""
    torch.autograd.Variable._execution_engine.queue_callback(partial(pending.discard, call))


def _over(pending: "WeakSet[Pending]", call: Pending, gradient: Tensor) -> None:
    """Removes a call, whose gradient has reached the first layer and so passed all later ones."""
    pending.discard(call)


class Current:
    """The groups of tokens of the running call, which all sites of a model share.

    Every thread has its own groups. Gradient checkpointing repeats parts of the forward pass inside
    the backward pass. These parts see the groups of the last call with gradients; if the whole call
    is repeated, they see its groups. Copies start without groups.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._last = Pending()  # the last call with gradients
        self._calls: WeakSet[Pending] = WeakSet()  # with gradients, not over yet
        self._values: dict[str, Tensor] = {}  # of first layers, in the last call with gradients
        self._pending: dict[str, WeakSet[Pending]] = {}  # calls whose backward pass may come
        self._kept: dict[str, Pending] = {}  # the last of them, which gave the values
        self._reentrant = False  # a layer of the last call ran without gradients

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
        if {call.groups for call in self._calls} - {self._last.groups}:
            raise InputError(
                "attention_mask or batch: gradient checkpointing repeats one of several calls, and "
                "it is not known which; call backward after each of them (others under "
                "torch.no_grad()), or turn checkpointing off"
            )
        return self._last.groups

    def enter(self, groups: Groups | None, trains: bool) -> None:
        """Sets the groups at the beginning of a call.

        Args:
            groups: of the call.
            trains: whether a backward pass may repeat parts of the call.
        """
        self._of_thread.groups = groups
        self._of_thread.layers = Layers([], [], {}, {}, trains)
        if not torch.compiler.is_compiling():
            self._of_thread.task = task = torch._C._current_graph_task_id()
            trains = trains and task == -1
        self._of_thread.call = Pending(groups) if trains and not recorded() else None
        if self._of_thread.call:
            self._last = self._of_thread.call
            self._calls.add(self._last)
            self._reentrant = False

    def leave(self, output: Any = None) -> None:
        """Forgets the groups at the end of a call, so that modules called alone do not see them.

        Hooks at its outputs, which live as long as their graph, note it until its backward pass.
        """
        self._of_thread.layers = None
        if torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1:
            self._of_thread.groups = None
        for x in tree_leaves(output) if (call := getattr(self._of_thread, "call", None)) else ():
            if isinstance(x, Tensor) and x.requires_grad:
                x.register_hook(partial(_begins, self._calls, call))
        self._of_thread.call = None

    def record(self, x: Tensor, context: Context) -> Context:
        """Adds the input of a layer to those of the call; the context then has all of them."""
        if (layers := self._layers()) is None:  # the layer is called alone
            return replace(context, inputs=(x,))
        if not layers.inputs or layers.inputs[-1] is not x:
            layers.inputs.append(x)
        return replace(context, inputs=tuple(layers.inputs), outputs=tuple(layers.outputs))

    def record_output(self, x: Tensor) -> None:
        """Adds the output of a layer to those of the call."""
        if (layers := self._layers()) is not None:
            layers.outputs.append(x)

    def first_values(self, v: Tensor, stack: str, layer: int) -> Tensor | None:
        """Returns the values of the first layer of a stack; None in that layer, which gives them.

        A layer that gradient checkpointing repeats gets those of the last call with gradients.

        Raises:
            InputError: the layer is called alone, or it is not known which call is repeated.
        """
        compiles = torch.compiler.is_compiling()
        layers = getattr(self._of_thread, "layers", None)
        repeats = layers is None and not compiles and torch._C._current_graph_task_id() != -1
        if layers is not None and layers.trains and not compiles:
            self._reentrant |= not torch.is_grad_enabled()
        if layer == 1:
            if layers is not None:
                layers.values[stack] = v
                if layers.trains and not compiles:
                    self._values.pop(stack, None)  # of the call before
                transforms = torch._C._are_functorch_transforms_active()  # which repeat no layer
                if v.requires_grad and not (compiles or transforms):
                    self._keep(v, stack)
            return None
        if repeats and (self._reentrant or self._others(stack)):
            raise InputError(
                "model: gradient checkpointing repeats a layer that needs the values of the first "
                "one; give use_reentrant=False, do not freeze the first layer, and call backward "
                "after each call of the model (others under torch.no_grad())"
            )
        kept = self._values if repeats else {} if layers is None else layers.values
        if stack not in kept or kept[stack].shape != v.shape:
            got = tuple(kept[stack].shape) if stack in kept else "none, since it is called alone"
            raise InputError(
                f"model: a layer with values {tuple(v.shape)} needs those of the first layer, got "
                f"{got}; call the whole model, choose blocks= whose values have one shape, or give "
                "use_cache=False where layers have other sliding windows"
            )
        return kept[stack]

    def _others(self, stack: str) -> set["Pending"]:
        """Returns the calls, other than that whose values are kept, that may be repeated."""
        return {call for call in self._pending.get(stack, ()) if call is not self._kept.get(stack)}

    def _keep(self, v: Tensor, stack: str) -> None:
        """Keeps the values of a first layer until the next call with gradients.

        A hook at the values, which lives as long as their graph, tells when their call is over.
        """
        self._values[stack] = v.detach().requires_grad_()
        pending, call = self._pending.setdefault(stack, WeakSet()), Pending()
        pending.add(call)
        self._kept[stack] = call
        v.register_hook(partial(_over, pending, call))

    def drawn(self, edges: Tensor, draw: Callable[[], list[Tensor]]) -> list[Tensor]:
        """Returns what is drawn for edges, which is the same in all layers of a call."""
        if (layers := self._layers()) is None:
            return draw()
        if id(edges) not in layers.drawn:
            layers.drawn[id(edges)] = (edges, draw())
        return layers.drawn[id(edges)][1]

    def _layers(self) -> "Layers | None":
        layers = getattr(self._of_thread, "layers", None)
        compiles = torch.compiler.is_compiling()
        if layers is None and not compiles and torch._C._current_graph_task_id() != -1:
            raise InputError(
                "model: gradient checkpointing repeats a layer without those before it, which skip "
                "connections and drop_edge need; checkpoint the whole model, or turn it off"
            )
        return layers

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Context whose calls are no others to those before, whose backward pass may come."""
        before = dict(vars(self))
        Current.__init__(self)
        try:
            yield
        finally:
            vars(self).update(before)

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
        model: the one to attach to.
        read: converts the arguments by name to groups; None if all tokens of a sample are one.
    """

    handles: list[RemovableHandle]

    def __init__(
        self,
        current: Current,
        model: nn.Module,
        read: Callable[[dict[str, Any]], Groups | None],
    ) -> None:
        self.current, self.read = current, read
        self.names = list(signature(model.forward).parameters)

    def attach(self, module: nn.Module) -> None:
        """Registers both hooks at a model."""
        begin = module.register_forward_pre_hook(self, with_kwargs=True)
        self.handles = [begin, module.register_forward_hook(self.leave, always_call=True)]

    def detach(self, module: nn.Module) -> None:
        """Undoes ``attach``."""
        for handle in self.handles:
            handle.remove()

    def leave(self, module: nn.Module, args: tuple, output: Any) -> None:
        self.current.leave(output)

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        groups = self.read(dict(zip(self.names, args)) | kwargs)
        self.current.enter(groups, torch.is_grad_enabled())


def ungrouped(given: dict[str, Any]) -> None:
    """Returns None: all tokens of a sample are one group."""
