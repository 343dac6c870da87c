"""Laws that hold for every aggregator in configs/aggregator."""

import math
from functools import partial
from inspect import signature
from typing import Any

import pytest
import torch
from every_aggregator import EVERY, C, apply, build
from tokens import random_tokens
from torch.utils.flop_counter import FlopCounterMode

import oversmoothing as osm
from oversmoothing.adapters.names import factories
from oversmoothing.aggregators.base import Context
from oversmoothing.errors import InputError

N = 10
METHODS = (
    *("attn_scale", "batchnorm", "centered", "contranorm", "contranorm_d", "diffgroupnorm", "em"),
    *("external", "external_multihead", "feat_scale", "gated_attention", "graphnorm"),
    *("layernorm", "nodenorm", "pairnorm", "re_attention", "self_attention"),
    *("shaped_attention", "drop_edge", "drop_message", "drop_node", "half_hop"),
)
POOLED = ("batchnorm", "diffgroupnorm", "re_attention")  # by definition, of the whole batch
WITHOUT_EFFECT = {("external_multihead", "key.bias")}  # a softmax over tokens ignores it


tokens = partial(random_tokens, 2, N, C, seed=3)


def path_graph(order: torch.Tensor) -> Context:
    """A path whose i-th node is ``order[i]``."""
    i = torch.arange(N)
    edges = torch.cat(
        [torch.stack([i[1:], i[:-1]]), torch.stack([i[:-1], i[1:]]), i.expand(2, -1)], 1
    )
    return Context(edges=order[edges], num_nodes=N)


@pytest.mark.parametrize("name", EVERY)
def test_permutation_equivariant(name: str) -> None:
    """Renaming the nodes renames the output: A(Πx, ΠG) = ΠA(x, G)."""
    x, aggregator = tokens(), build(name)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(4))
    plain = apply(aggregator, x, path_graph(torch.arange(N)))
    moved = torch.empty_like(x).index_copy_(1, order, x)
    renamed = apply(aggregator, moved, path_graph(order))
    assert torch.allclose(renamed[:, order], plain, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in POOLED])
def test_leading_dimensions_are_independent(name: str) -> None:
    x, aggregator, context = tokens(), build(name), path_graph(torch.arange(N))
    together = apply(aggregator, x, context)
    alone = torch.stack([apply(aggregator, one[None], context)[0] for one in x])
    assert torch.allclose(together, alone, atol=1e-12)


@pytest.mark.parametrize("name", ["em", "hem", "em_gradient", "external", "external_multihead"])
def test_twice_the_tokens_cost_twice_as_much(name: str) -> None:
    aggregator = build(name)

    def flops(n: int) -> int:
        with FlopCounterMode(display=False) as counter:
            out = aggregator(random_tokens(2, n, C).requires_grad_(), Context())
            if out.requires_grad:
                out.sum().backward()
        return counter.get_total_flops()

    assert flops(2 * N) == 2 * flops(N) > 0


@pytest.mark.parametrize("name", EVERY)
def test_compiles_as_one_graph(name: str) -> None:
    """On dense tokens and on a graph that is prepared: fullgraph refuses every break."""
    x, aggregator, graph = tokens(), build(name), path_graph(torch.arange(N))
    assert graph.neighbours.tiles
    compiled = torch.compile(apply, backend="eager", fullgraph=True)
    for context in (Context(), graph):
        expected = apply(aggregator, x, context)
        assert torch.equal(compiled(aggregator, x, context), expected)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", EVERY)
def test_gradient_reaches_input_and_every_parameter(name: str) -> None:
    x, aggregator = tokens().requires_grad_(), build(name)
    weight = torch.randn(2, N, C, generator=torch.Generator().manual_seed(5), dtype=x.dtype)
    out = apply(aggregator, x, path_graph(torch.arange(N)))
    assert out.requires_grad == getattr(aggregator, "passes_gradient", True)
    if not out.requires_grad:
        assert not list(aggregator.parameters())
        return
    (out * weight).sum().backward()
    assert x.grad.abs().sum() > 0
    for parameter_name, parameter in aggregator.named_parameters():
        if (name, parameter_name) in WITHOUT_EFFECT:
            assert parameter.grad.abs().max() < 1e-14
            continue
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, parameter_name


@pytest.mark.parametrize("name", EVERY)
def test_built_without_memory(name: str) -> None:
    """As transformers builds models before it loads their weights."""
    with torch.device("meta"):
        build(name)


KINDS = {name: factories(name, {})[0] for name in METHODS}
NUMBERS = [
    (kind, option)
    for kind in KINDS.values()
    for option, parameter in signature(kind).parameters.items()
    if not isinstance(parameter.default, bool)
]


@pytest.mark.parametrize(("kind", "option"), NUMBERS)
def test_an_option_of_another_type_is_named(kind: Any, option: str) -> None:
    """A size of 0 is refused, too: its output would be empty, or not a number."""
    sizes = {"dim": C} if "dim" in signature(kind).parameters else {}
    for wrong in ("x", [], object(), *([0, -1, 2.5, True, None] if option == "dim" else [])):
        with pytest.raises(InputError, match=rf"^aggregator\.{option}: expected"):
            kind(**{**sizes, option: wrong})


ONE, TWO = torch.tensor([1.0, -1.0]), torch.ones(2, 1, 1)
WRONG = [  # what has no meaning, and the option that is named
    *((osm.Centered, {"gamma": wrong}, "gamma") for wrong in (math.nan, math.inf)),
    *((osm.PairNorm, {"scale": wrong}, "scale") for wrong in (0, math.inf, ONE)),
    (osm.PairNorm, {"mode": "pn-si"}, "mode"),
    (partial(osm.ContraNorm, C), {"temperature": 0}, "temperature"),
    (partial(osm.ContraNorm, C), {"positive": True}, "positive"),
    (partial(osm.ContraNorm, C), {"learnable": True, "scale": 0.0}, "scale"),
    (partial(osm.ContraNorm, C), {"learnable": True, "scale": TWO}, "scale"),
    (partial(osm.ContraNorm, C), {"scale": math.nan}, "scale"),
    (partial(osm.ContraNorm, C), {"negatives": 0}, "negatives"),
    (partial(osm.ContraNorm, C), {"printed": True, "negatives": 4}, "negatives"),
    (partial(osm.ContraNorm, C), {"dual": True, "negatives": 4}, "negatives"),
    (partial(osm.ContraNormD, C), {"scale": math.nan}, "scale"),
    *((partial(osm.EM, C), {option: wrong}, option) for option, wrong in [
        ("num_bases", 0), ("iterations", 0), ("eval_iterations", 0), ("step_size", 0.0),
        ("step_size", 1.1), ("temperature", 0.0), ("temperature", "sqrt"), ("kernel", "rbf"),
        ("momentum", 1.0), ("momentum", -0.1)]),
    *((partial(osm.External, C), {option: wrong}, option) for option, wrong in [
        ("num_slots", 0), ("norm", "l1")]),
    *((partial(osm.ExternalMultiHead, C), {option: wrong}, option) for option, wrong in [
        ("num_slots", 0), ("num_heads", 0), ("num_heads", 5), ("coef", 0), ("norm", "l1")]),
    *((partial(osm.SelfAttention, C), {option: wrong}, option) for option, wrong in [
        ("num_heads", 0), ("num_heads", 5), ("norm", "l1")]),
]  # fmt: skip


@pytest.mark.parametrize(("build", "options", "key"), WRONG)
def test_options_out_of_range_are_named(build: Any, options: dict, key: str) -> None:
    with pytest.raises(InputError, match=rf"^aggregator\.{key}: "):
        build(**options)


@pytest.mark.parametrize(
    "name", ["centered", "contranorm", "contranorm_d", "feat_scale", "pairnorm"]
)
def test_masks_that_an_aggregator_cannot_follow_are_refused(name: str) -> None:
    """A padding mask needs the shape (B, 1, N); norms cannot hide other tokens from each token."""
    hidden = [{"mask": torch.ones(2, N, dtype=torch.bool)}]
    if name != "centered":
        hidden += [{"causal": True}, {"mask": torch.ones(N, N).bool().tril()}]
    for context in hidden:
        with pytest.raises(InputError, match=r"^context\.mask: "):
            apply(build(name), tokens()[:, :N], Context(**context))
