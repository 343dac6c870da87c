"""The interface of aggregators: where they act in a network, and what they get there.

A backbone mixes tokens (patches, words, pixels or nodes of a graph) by a matrix product,

.. math:: \\mathrm{mixed} = M V

where M (N, N) is a softmax attention or a normalised adjacency, and V (..., N, C) are the values.
An aggregator changes this step at one of three sites. It derives from the class of its site and
implements ``forward``:

- ``Inside`` receives ``mixed`` and V: Centered.
- ``After`` receives the mixed tokens: LayerNorm, PairNorm, ContraNorm.
- ``Instead`` receives the unmixed tokens, and M is not computed: EM, External.

A complete aggregator:

    class MeanShift(After):
        def __init__(self, dim: int, fraction: float = 0.5) -> None:
            super().__init__()
            self.fraction = nn.Parameter(torch.full((dim,), fraction))

        def forward(self, x: Tensor, context: Context) -> Tensor:
            return x - self.fraction * x.mean(dim=-2, keepdim=True)

Every aggregator keeps these rules:

- ``forward`` accepts any leading dimensions and treats their entries independently.
- The output has the shape of the first input. If the tokens are reordered, so is the output.
- A constructor that has a parameter ``dim`` gets the number of channels C from the backbone. In a
  multi-head attention, ``Inside`` acts on each head, so C is the number of channels of one head,
  and a parameter ``heads`` gets the number of heads H; tokens are then (..., H, N, C).
- The site is a property of the class. Backbones read it before they build an instance.
- Parameters and buffers belong to one network. A backbone that trains the networks of several
  seeds at once builds one instance for each seed.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from oversmoothing.aggregators.neighbours import Neighbours, neighbours_of
from oversmoothing.errors import InputError


@dataclass(frozen=True)
class Context:
    """The information that a backbone has about its mixing.

    Args:
        prefix: number of leading tokens that are not patches or words (CLS, distillation).
        row_sum: row sums of M, (N, 1), or (N, C) if M differs between channels; None if all are 1.
        edges: row and column of every entry of a sparse M, (2, E), self-loops included; None if M
            is dense.
        num_nodes: N; needed with ``edges``.
        mask: which of the N values a token may see, boolean, broadcastable to (..., N_q, N), where
            N_q is the number of mixed tokens; None if every token sees all.
        causal: a token sees itself and the tokens before it. The N_q mixed tokens are the last of
            the N, as in generation with a cache of keys and values.
        inputs: inputs of the layers so far, that of this layer last; empty if no aggregator reads
            them.
        outputs: outputs of the layers before, after their aggregators.
        layer: number of the layer among those with this aggregator, from 1.
        first_values: V of the first attention layer with this aggregator, in the shape of V; None
            in that layer, or if no aggregator reads it.
        tokens: input of the attention layer, (..., N_q, C of the network); None if no aggregator
            reads it.
    """

    prefix: int = 0
    row_sum: Tensor | None = None
    edges: Tensor | None = None
    num_nodes: int | None = None
    mask: Tensor | None = None
    causal: bool = False
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    layer: int = 1
    first_values: Tensor | None = None
    tokens: Tensor | None = None

    @cached_property
    def neighbours(self) -> Neighbours | None:
        """The entries of a sparse M, sorted at the first use; None if M is dense.

        Raises:
            InputError: ``num_nodes`` is missing, the edges are not pairs of these nodes, or the
                call is exported.
        """
        if self.edges is None:
            return None
        if self.num_nodes is None:
            raise InputError("Context: edges also need num_nodes; give the number of nodes")
        require_followed("edges: how they lie in blocks")
        return neighbours_of(self.edges, self.num_nodes)


SIZES = ("dim", "heads", "channels", "layers")  # arguments that a network gives to constructors
PLAIN = Context()  # dense mixing of tokens that all see each other


class Aggregator(nn.Module):
    """Base class of ``Inside``, ``After`` and ``Instead``; derive from one of those.

    Attributes:
        site: ``inside``, ``after`` or ``instead``. ``oversmoothing.apply`` also knows ``before``
            (acts on the tokens that a layer gets), ``edges`` and ``messages`` (on those of a
            convolution) and ``graph`` (on that of a whole model).
        can_be_causal: whether the output for a token depends on no token that ``Context.causal``
            and ``Context.mask`` hide from it. Causal models refuse aggregators that lack this.
        reads_edges: whether ``forward`` may look at ``Context.edges``; if not, the graphs of a
            batch can be aggregated together.
        reads_inputs: whether ``forward`` reads ``Context.inputs``, as skip connections do. They act
            in layers that keep the number of channels.
        reads_values: whether it reads ``Context.first_values``, or changes the values before they
            are mixed; see ``Inside.values``.
        reads_tokens: whether it reads ``Context.tokens``.
        reads_maps: whether it changes M itself, which is then formed; see ``Inside.maps``.
        of_branches: whether it acts on a branch before its residual sum, and nowhere else.
        reads_mask: whether ``forward`` supports a padding mask: a ``Context.mask`` (..., 1, N),
            which hides the same tokens from all. If not, sentences are grouped by length and
            aggregated without their padding.
        tokenwise: whether the output for a token depends on this token alone.
        draws: whether ``forward`` draws random numbers in training, other than by a child such as
            ``nn.Dropout``. A backbone that trains several seeds then builds one instance for each.
        can_be_shared: whether layers can share an instance; not if it has moving averages.
        of_batch: whether ``forward`` gets all samples of a batch at once, also graphs and
            sentences of several sizes, since its statistics are those of all of them.
    """

    site: ClassVar[str]
    can_be_causal: ClassVar[bool] = False
    reads_edges: ClassVar[bool] = True
    reads_inputs: ClassVar[bool] = False
    reads_values: ClassVar[bool] = False
    reads_tokens: ClassVar[bool] = False
    reads_maps: ClassVar[bool] = False
    of_branches: ClassVar[bool] = False
    reads_mask: bool = False
    tokenwise: ClassVar[bool] = False
    draws: bool = False
    can_be_shared: ClassVar[bool] = True
    of_batch: ClassVar[bool] = False

    @property
    def steady(self) -> bool:
        """Whether all further steps run the same operations, so that a CUDA graph can replay them.

        By default: if the class does not override ``advance`` and draws no random numbers.
        """
        return not self.draws and type(self).advance is Aggregator.advance

    def advance(self, step: int) -> None:
        """Prepares for a training step, for example to warm up; does nothing by default.

        The training loop calls this before each optimisation step.

        Args:
            step: index of the optimisation step, from 0.
        """

    def settle(self) -> None:
        """Updates moving averages and the like; does nothing by default.

        The training loop calls this after each optimisation step.
        """


class Masked(Aggregator):
    """Reads padding masks and no edges; derive from this and from the class of the site."""

    reads_edges = False
    reads_mask = True


class Tokenwise(Masked):
    """Acts on every token alone."""

    can_be_causal = True
    tokenwise = True


class Inside(Aggregator):
    """Acts inside the mixing, on the product of M and V; it also gets V.

    Attributes:
        adds_mean: whether it adds to M V only what depends on V alone and is the same for all
            tokens that see the same ones.
    """

    site = "inside"
    adds_mean: ClassVar[bool] = False

    def values(self, v: Tensor, context: Context = PLAIN) -> Tensor:
        """Returns the values to mix in place of v, if ``reads_values``; by default v.

        Shapes: v (..., N, C) -> (..., N, C).
        """
        return v

    def maps(self, m: Tensor, context: Context = PLAIN) -> Tensor:
        """Returns the matrices to mix by in place of M, if ``reads_maps``; by default M.

        Shapes: m (..., H, N_q, N) -> (..., H, N_q, N).
        """
        return m

    def forward(self, mixed: Tensor, v: Tensor, context: Context = PLAIN) -> Tensor:
        """Returns the tensor that replaces ``mixed``.

        Args:
            mixed: M V.
            v: the values V.
            context: what the backbone knows about M.

        Shapes: mixed (..., N, C), v (..., N, C) -> (..., N, C). With ``context.mask`` or
        ``context.causal`` mixed may have fewer tokens N_q than v: (..., N_q, C) -> (..., N_q, C).
        """
        raise NotImplementedError


class After(Aggregator):
    """Acts on the mixed tokens."""

    site = "after"

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        """Returns the tensor that replaces the mixed tokens x.

        Shapes: x (..., N, C) -> (..., N, C).
        """
        raise NotImplementedError


class Instead(Aggregator):
    """Replaces the mixing: the backbone neither computes M nor has the parameters for it.

    Attributes:
        passes_gradient: whether gradients flow to x. If not, the backbone freezes the parameters
            that only x depends on.
        relu_after: whether a backbone with a convolution after the aggregator applies a ReLU
            between the two.
    """

    site = "instead"
    passes_gradient: bool = True
    relu_after: bool = False

    def forward(self, x: Tensor, context: Context = PLAIN) -> Tensor:
        """Mixes the tokens x.

        Shapes: x (..., N, C) -> (..., N, C).
        """
        raise NotImplementedError


def advance(model: nn.Module, step: int) -> None:
    """Calls ``advance`` of every aggregator in a model."""
    for module in model.modules():
        if isinstance(module, Aggregator):
            module.advance(step)


def steady(model: nn.Module) -> bool:
    """Whether every aggregator in a model is ``steady``."""
    return all(module.steady for module in model.modules() if isinstance(module, Aggregator))


def settle(model: nn.Module) -> None:
    """Calls ``settle`` of every aggregator in a model."""
    for module in model.modules():
        if isinstance(module, Aggregator):
            module.settle()


def make(factory: Callable[..., Aggregator], dim: int, **sizes: int) -> Aggregator:
    """Builds an aggregator.

    Args:
        factory: a class, a ``functools.partial`` of one, or a function.
        dim: channels C of the tokens; passed on if the factory asks for it, see ``wants``.
        sizes: others of ``SIZES``, passed on in the same way.

    Raises:
        InputError: the aggregator has no ``forward``, or one with other arguments.
    """
    known = {"dim": dim, **sizes}
    made = factory(**{name: size for name, size in known.items() if wants(factory, name)})
    if isinstance(made, Inside | After | Instead):
        _require_forward(made)
    return made


def wants_dim(factory: Callable) -> bool:
    """Whether a factory has a parameter ``dim`` that no ``functools.partial`` has set."""
    return wants(factory, "dim")


def wants(factory: Callable, name: str) -> bool:
    """Whether a factory has a parameter of this name that no ``functools.partial`` has set."""
    parameters = inspect.signature(factory).parameters
    return name in parameters and name not in getattr(inspect.unwrap(factory), "keywords", {})


def require_followed(what: str) -> None:
    """Checks that a call is not exported or traced, where sizes cannot depend on values.

    torch.compile leaves such a part out of its graph, or raises its own error with fullgraph=True.

    Args:
        what: has such sizes; begins the message.
    """
    compiles = torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()
    if compiles or torch.jit.is_tracing():
        raise InputError(
            f"{what} differs between inputs, which torch.export and torch.jit.trace cannot follow; "
            "run the model as it is, or choose another method"
        )


def checked(aggregator: nn.Module, x: Tensor, result: Tensor) -> Tensor:
    """Returns the result of an aggregator for x; raises InputError for one of another shape."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return result
    if not isinstance(result, Tensor) or result.shape != x.shape:
        got = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise InputError(
            f"aggregator: {type(aggregator).__name__}.forward returns {got} for tokens "
            f"{tuple(x.shape)}; return a tensor of this shape"
        )
    return result


def _require_forward(aggregator: Inside | After | Instead) -> None:
    arguments = ("mixed", "v", "context") if isinstance(aggregator, Inside) else ("x", "context")
    try:
        inspect.signature(aggregator.forward).bind(*arguments)
        missing = type(aggregator).forward in (Inside.forward, After.forward, Instead.forward)
    except TypeError:
        missing = True
    if missing:
        raise InputError(
            f"aggregator: {type(aggregator).__name__} needs a method forward(self, "
            f"{', '.join(arguments)})"
        )
