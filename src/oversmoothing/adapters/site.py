"""Aggregators at one place of an existing model, which keeps its own modules.

The module also reads tokens from tensors of other layouts, and finds their number of channels.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar, NamedTuple
from weakref import ref

from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.fx import Proxy
from torch.utils.hooks import RemovableHandle

from oversmoothing.adapters.calls import Capture, Current, Groups
from oversmoothing.adapters.sites import Chain, Factory
from oversmoothing.aggregators.base import PLAIN, Aggregator, Context, checked, wants_dim
from oversmoothing.errors import InputError

LAYOUTS = ("BNC", "NBC", "BCN", "BCHW", "BHWC", "NC")
MEANING = "B samples, N tokens or nodes, C channels, H rows, W columns"
SIZES = ("out_channels", "channels", "out_features")  # attributes with the channels of an output


class Loading(threading.local):
    """The running ``load_state_dict`` of a thread, of which every site sees its own part."""

    missing: list[str] | None = None  # of this call; torch passes it to all modules
    kept: list[str]  # keys of the sites whose values stay
    some = False  # whether the state has any aggregator

    def keeps(self, own: Mapping[str, Any], known: bool, missing: list[str]) -> bool:
        """Whether a site keeps its values; if the state has others, they count as missing."""
        if self.missing is not missing:
            self.missing, self.kept, self.some = missing, [], False
        if known and not self.some:
            self.some = True
            missing += self.kept
        keeps = not self.some and not any(getattr(x, "is_meta", False) for x in own.values())
        self.kept += own if keeps else ()
        return keeps


LOADING = Loading()


class Held:
    """What a hook keeps of a running call; every thread has its own, and copies start without.

    It is no subclass of ``threading.local``, whose attributes torch.compile reads from the wrong
    dictionary when it compiles again.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def get(self) -> Any:
        return getattr(self._of_thread, "value", None)

    def set(self, value: Any) -> None:
        self._of_thread.value = value

    def __reduce__(self) -> tuple:
        return Held, ()


class Parent:
    """The module that holds another one by a name; it is not kept alive, nor in pickles."""

    def __init__(self, module: nn.Module | None = None, name: str = "") -> None:
        self.module = None if module is None else ref(module)
        self.name = name.rpartition(".")[2]

    def require_whole(self, module: nn.Module) -> None:
        """Checks that the module has not been put into a layer that adds to it, such as LoRA's.

        Such a layer of torch's attention merges its weights, and so adds to no output.
        """
        if is_compiling() or isinstance(module, nn.MultiheadAttention):
            return
        wrapper = getattr(self.module and self.module(), self.name, None)
        if getattr(wrapper, "base_layer", None) is module:
            raise InputError(
                f"model: {self.name} has been put into {type(wrapper).__name__}, so its method "
                "would act before what this adds; call oversmoothing.remove, add such layers "
                "first, then call oversmoothing.apply"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> "Parent":
        return Parent(memo.get(id(self.module and self.module())), self.name)

    def __reduce__(self) -> tuple:
        return Parent, ()


class Site(Chain):
    """Aggregators at one place of a model, registered as a child of the module where they act.

    So the model's ``parameters()``, ``to()`` and ``train()`` reach them, its own parameters keep
    their names, and copies and pickles of the model have their sites. A state dict of the
    model without aggregators loads strictly; the aggregators then keep their values. A state with
    parameters of some aggregators must have those of all.

    Args:
        aggregators: in the order in which they act.
        context: what is known about the mixing before the model runs.
        current: groups of tokens that the aggregators must not mix, and the inputs of the layers;
            dropped if no aggregator needs them.

    Attributes:
        name: of the child.
        names: of the arguments of the module.
        keeps_call: whether ``current`` is kept although no aggregator needs it.
        reads_inputs: whether an aggregator reads the inputs of the layers.
        reads_values: whether an aggregator reads the values of the first layer.
        reads_tokens: whether an aggregator reads the tokens that the layer gets.
        reads_maps: whether an aggregator changes the maps of an attention.
        held: what hooks keep of the running call for the aggregators.
        around: the hooks that read masks for this site.
        parent: what holds the module.
    """

    name: ClassVar[str]
    keeps_call: ClassVar[bool] = False
    around: Sequence[Any] = ()
    parent: Parent = Parent()

    def __init__(
        self,
        aggregators: Sequence[Aggregator],
        context: Context = PLAIN,
        current: Current | None = None,
    ) -> None:
        super().__init__(aggregators)
        self.tokenwise = all(getattr(aggregator, "tokenwise", False) for aggregator in aggregators)
        self.reads_inputs = any(aggregator.reads_inputs for aggregator in aggregators)
        self.reads_values = any(aggregator.reads_values for aggregator in aggregators)
        self.reads_tokens = any(aggregator.reads_tokens for aggregator in aggregators)
        self.reads_maps = any(aggregator.reads_maps for aggregator in aggregators)
        kept = self.keeps_call or self.reads_inputs or not self.tokenwise
        self.context, self.current = context, current if kept else None
        self.held, self.handles = Held(), list[RemovableHandle]()

    def check(self, module: nn.Module) -> None:
        """Raises InputError if the site cannot be attached to a module or detached from it."""

    def attach(self, module: nn.Module) -> None:
        """Makes a module call the aggregators."""
        self.names = list(signature(module.forward).parameters)
        self.connect(module)
        module.add_module(self.name, self)

    def detach(self, module: nn.Module) -> None:
        """Undoes ``attach``."""
        for handle in self.handles:
            handle.remove()
        delattr(module, self.name)

    def connect(self, module: nn.Module) -> None:
        """Makes a module call the aggregators, by hooks or by another class."""
        raise NotImplementedError

    def given(self, args: tuple, kwargs: dict) -> dict[str, Any]:
        """Returns the arguments of a call of the module by name."""
        return dict(zip(self.names, args)) | kwargs

    def act(self, *tensors: Tensor, context: Context | None = None) -> Tensor:
        """Applies the aggregators to tokens, or to mixed tokens and values, group by group.

        Args:
            context: of this call; None: the one given to the site.
        """
        context = self.context if context is None else context
        if isinstance(tensors[0], Proxy):
            return as_leaf(self, *tensors)
        if (groups := self._groups()) is None:
            return self(*tensors, context)
        if not (self.reads_tokens or any(aggregator.of_batch for aggregator in self)):
            return groups.apply(self, *tensors, context=context)
        x, *values = tensors
        for aggregator in self:
            if aggregator.reads_tokens:  # of which groups know nothing
                x = aggregator(x, *values, context)
            else:
                x = checked(aggregator, x, groups.apply(aggregator, x, *values, context=context))
        return x

    def _groups(self) -> Groups | None:
        """Returns the groups that hooks read from the calls of modules around, if any."""
        if self.tokenwise:
            return None
        groups = None if self.current is None else self.current.groups
        if groups is not None or not self.around:
            return groups
        return self.around[0].groups(self)

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        """Applies every aggregator; without a context, as torch.fx calls it, see ``act``."""
        known = others and isinstance(others[-1], Context)
        return super().forward(x, *others) if known else self.act(x, *others)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        """Loads a state; a state without any aggregators changes nothing."""
        own = self.state_dict(prefix=prefix)
        known = any(key in state_dict for key in own)
        if LOADING.keeps(own, known, missing=rest[2]):
            state_dict |= own
        super()._load_from_state_dict(state_dict, prefix, *rest)


class BeforeModule(Site):
    """Acts on the first input of a module.

    Attributes:
        width: channels of the tokens at a module whose weight does not tell it; 0 if unknown.
    """

    name = "before"
    width = 0

    def connect(self, module: nn.Module) -> None:
        self.handles = [module.register_forward_pre_hook(_before, with_kwargs=True)]


class AfterModule(Site):
    """Acts on the output of a module, or on the first of several outputs.

    Args:
        aggregators, context, current: see ``Site``.
        layout: of the output, one of ``LAYOUTS``; None: tokens (B, N, C) or nodes (N, C).
        dim: channels for which the aggregators were built; 0 if unknown.
    """

    name = "after"

    def __init__(
        self,
        aggregators: Sequence[Aggregator],
        context: Context = PLAIN,
        current: Current | None = None,
        layout: str | None = None,
        dim: int = 0,
    ) -> None:
        super().__init__(aggregators, context, current)
        self.layout = layout
        self.width = dim if next(self.parameters(), None) is not None else 0

    def connect(self, module: nn.Module) -> None:
        self.handles = [module.register_forward_hook(_after, with_kwargs=True)]

    def of_call(self, module: nn.Module, args: tuple, kwargs: dict, num_tokens: int) -> Context:
        """Returns what is known about the mixing in a call of the module."""
        if not self.reads_inputs:
            return self.context
        x = input_of(args, kwargs, num_tokens)
        x = x if self.layout is None else to_tokens(x, self.layout)
        return self.current.record(x, self.context)


def _before(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    module.before.parent.require_whole(module)
    weight = getattr(module, "weight", None)
    one = isinstance(weight, Tensor) and weight.dim() == 1
    width = len(weight) if one else module.before.width
    if args:
        return (module.before.act(_tokens(args[0], module, width)), *args[1:]), kwargs
    first = next(name for name in (*module.before.names, *kwargs) if name in kwargs)
    return args, {**kwargs, first: module.before.act(_tokens(kwargs[first], module, width))}


def _after(module: nn.Module, args: tuple, kwargs: dict, output: Any) -> Any:
    module.after.parent.require_whole(module)
    given, *rest = output if type(output) is tuple else (output,)
    layout = module.after.layout
    x = _tokens(given, module, module.after.width, layout)
    context = module.after.of_call(module, args, kwargs, x.shape[-2])
    x = module.after.act(x, context=context)
    if module.after.reads_inputs:
        module.after.current.record_output(x)
    x = x if layout is None else from_tokens(x, given, layout)
    return (x, *rest) if type(output) is tuple else x


def input_of(args: tuple, kwargs: dict, num_tokens: int | None = None) -> Tensor:
    """Returns the tokens that a module gets; of a bipartite graph, those of the targets."""
    named = (kwargs[name] for name in ("x", "query") if name in kwargs)
    x = args[0] if args else next(named, next(iter(kwargs.values()), None))
    if not isinstance(x, tuple | list):
        return x
    sources, targets = x
    return sources[..., :num_tokens, :] if targets is None else targets


def as_leaf(site: Site, *args: Any) -> Any:
    """Records a call of a site in the graph of torch.fx that a model is traced to."""
    tracer = args[0].tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(site), args, {})


def _tokens(x: Any, module: nn.Module, width: int, layout: str | None = None) -> Tensor:
    """Returns x as tokens (B, N, C) or nodes (N, C); raises InputError if x has other axes.

    Args:
        width: channels C that are expected; 0 if unknown.
    """
    if isinstance(x, Proxy):
        return x if layout is None else to_tokens(x, layout)
    if isinstance(x, Tensor) and x.is_nested:
        raise InputError(
            f"where: {type(module).__name__} gets a nested tensor, which aggregators cannot read; "
            "build nn.TransformerEncoder with enable_nested_tensor=False"
        )
    if isinstance(x, Tensor) and x.dim() in ((2, 3) if layout is None else (len(layout),)):
        tokens = x if layout is None else to_tokens(x, layout)
        if width and tokens.shape[-1] != width:
            raise InputError(
                f"where: tokens at {type(module).__name__} have {tokens.shape[-1]} channels, "
                f"expected {width}; give where= as a pattern of module names, with layout=BCN if "
                "tokens are (B, C, N), or a factory that knows, for example "
                "functools.partial(ContraNorm, dim=64)"
            )
        return tokens
    if isinstance(x, tuple) and hasattr(module, "propagate"):
        raise InputError(
            f"model: {type(module).__name__} gets several inputs (a bipartite graph), before which "
            "aggregators cannot act; give the whole graph, or choose another aggregator"
        )
    is_map = isinstance(x, Tensor) and x.dim() == 4
    got = f"a tensor {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
    raise InputError(
        f"where: expected {layout or 'tokens (B, N, C) or nodes (N, C)'} at "
        f"{type(module).__name__}, got {got}; "
        + ("give layout=BCHW or BHWC for a feature map, or " * is_map + "choose another module")
    )


class Placed(NamedTuple):
    """A site, or the hook that reads its groups, and the module that it is attached to."""

    module: nn.Module
    site: Site | Capture


def sites_of(placed: Iterable[Placed]) -> list[Site]:
    """Returns the sites among places, without the hooks that read groups."""
    return [place.site for place in placed if isinstance(place.site, Site)]


def require_module(model: nn.Module) -> nn.Module:
    """Returns the model; raises InputError if it is not a module of torch."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    return model


def placed_in(model: nn.Module) -> list[Placed]:
    """Returns all sites of a model with their modules; raises InputError if it is no model."""
    found: list[Placed] = []
    for module in require_module(model).modules():
        hooks = module._forward_pre_hooks.values()
        attached = [*module.children(), *hooks]
        found += [Placed(module, site) for site in attached if isinstance(site, Site | Capture)]
    return found


def check_layout(layout: str | None) -> None:
    """Raises InputError for a layout that is not one of ``LAYOUTS``."""
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"layout: expected one of {', '.join(LAYOUTS)}, got {layout!r}")


def to_tokens(x: Tensor, layout: str) -> Tensor:
    """Returns tokens (B, N, C) of a tensor in a layout; nodes (N, C) stay as they are."""
    match layout:
        case "NBC":
            return x.transpose(0, 1)
        case "BCN":
            return x.mT
        case "BCHW":
            return x.flatten(2).mT
        case "BHWC":
            return x.flatten(1, 2)
    return x


def from_tokens(tokens: Tensor, like: Tensor, layout: str) -> Tensor:
    """Returns tokens (B, N, C) in a layout, with the shape of ``like``."""
    match layout:
        case "NBC":
            return tokens.transpose(0, 1)
        case "BCN" | "BCHW":
            return tokens.mT.reshape(like.shape)
    return tokens.reshape(like.shape)


def channels(module: nn.Module, factories: Sequence[Factory]) -> int:
    """Returns the number of channels of a module's output; 0 if no factory asks for it.

    Raises:
        InputError: the number cannot be found.
    """
    if not any(map(wants_dim, factories)):
        return 0
    if found := width(module):
        return found
    raise InputError(
        f"aggregator: cannot tell how many channels {type(module).__name__} has; give a factory "
        "that knows, for example functools.partial(ContraNorm, dim=64)"
    )


def linear_in(module: nn.Module) -> Any:
    """Returns a linear layer: a module itself, or the largest one in a wrapper such as LoRA's.

    Raises:
        InputError: there is none.
    """
    found = [m for m in module.modules() if isinstance(getattr(m, "out_features", None), int)]
    if not found:
        raise InputError(f"model: expected a linear layer, got {type(module).__name__}")
    return max(found, key=lambda m: m.in_features * m.out_features)


def width(module: nn.Module) -> int:
    """Returns the number of channels of a module's output, from its attributes or its last layer.

    It is 0 if neither tells it.
    """
    heads = module.heads if getattr(module, "concat", False) and hasattr(module, "heads") else 1
    for part in (module, *reversed(list(module.modules()))):
        for name in SIZES:
            if isinstance(size := getattr(part, name, None), int):
                return size * heads if part is module else size
        weight = getattr(part, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() == 1:  # a norm
            return len(weight)
    return 0
