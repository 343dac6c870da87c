"""Norms: parity with torch-geometric, and their invariants."""

from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from tokens import random_tokens

from oversmoothing.aggregators.attn_scale import AttnScale
from oversmoothing.aggregators.base import PLAIN, Context, Inside
from oversmoothing.aggregators.batchnorm import BatchNorm
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.contranorm_d import ContraNormD
from oversmoothing.aggregators.diffgroupnorm import DiffGroupNorm
from oversmoothing.aggregators.feat_scale import FeatScale
from oversmoothing.aggregators.graphnorm import GraphNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.meannorm import MeanNorm
from oversmoothing.aggregators.nodenorm import NodeNorm
from oversmoothing.aggregators.pairnorm import PairNorm
from oversmoothing.aggregators.shaped_attention import ShapedAttention
from oversmoothing.errors import InputError
from oversmoothing.metrics.uniformity import uniformity


def tokens() -> torch.Tensor:
    return random_tokens(20, 7, seed=1) * 3 + 1


@pytest.mark.parametrize("scale", [0.2, 1.0])
@pytest.mark.parametrize("mode", ["PN", "PN-SI"])
def test_pairnorm_equals_torch_geometric(mode: str, scale: float) -> None:
    x = tokens()
    theirs = pyg.PairNorm(scale, scale_individually=mode == "PN-SI", eps=1e-6)(x)
    # they add eps outside the root for PN-SI, the authors inside: 1e-6 relative
    assert torch.allclose(PairNorm(mode, scale)(x, Context()), theirs, atol=1e-6)


ALIKE = 100 + random_tokens(2, 400, 8, seed=2) / 10
MEANS = {
    "meannorm": MeanNorm(),
    "centered": Centered(-1.0),
    "attn_scale": AttnScale(start=1.0),
    "shaped_attention": ShapedAttention(alpha=0.5, beta=0.5, gamma=1.0),
    "feat_scale": FeatScale(8),
    "uniformity": partial(uniformity, temperature=1e4),
}


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_autocast_keeps_differences_of_tokens_that_are_alike(name, dtype) -> None:
    """Their mean has more digits than half precision, and the sum is above its range."""
    method, mask = MEANS[name], torch.arange(400) < 300
    if name == "feat_scale":
        method.s.fill_(-1.0)
    of = (ALIKE, ALIKE) if isinstance(method, Inside) else (ALIKE,)
    context = {} if name == "uniformity" else {"context": Context(mask=mask)}
    expected = method(*of, **context)
    with torch.autocast("cpu", dtype):
        found = method(*(x.float() for x in of), **context)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-3)


def drawn(module: torch.nn.Module) -> torch.nn.Module:
    """In float64, with parameters away from their initial values."""
    for number, parameter in enumerate(module.parameters()):
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
        parameter.data += 0.3 * noise
    return module.double()


def twins(ours: torch.nn.Module, theirs: torch.nn.Module) -> tuple[torch.nn.Module, ...]:
    """Both with equal parameters, in float64."""
    drawn(ours)
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        other.data = own.data.clone()
    return ours, theirs.double()


PAIRS = {
    "LayerNorm": lambda: (LayerNorm(7), pyg.LayerNorm(7, mode="node")),
    "GraphNorm": lambda: (_graphnorm(), pyg.GraphNorm(7)),
    "BatchNorm": lambda: (BatchNorm(7), pyg.BatchNorm(7)),
    "DiffGroupNorm": lambda: (
        DiffGroupNorm(7, 3, 0.5), pyg.DiffGroupNorm(7, 3, 0.5, momentum=0.3)),
    "MeanNorm": lambda: (MeanNorm(), pyg.MeanSubtractionNorm()),
}  # fmt: skip


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", PAIRS)
def test_equals_torch_geometric(kind: str, training: bool) -> None:
    ours, theirs = twins(*PAIRS[kind]())
    for _ in range(3):  # moving averages differ from the initial ones afterwards
        assert torch.allclose(ours(tokens()), theirs(tokens()), atol=1e-12)
    ours.train(training), theirs.train(training)
    assert torch.allclose(ours(tokens() + 1), theirs(tokens() + 1), atol=1e-12)


def _graphnorm() -> GraphNorm:
    """Its parameters in torch-geometric's order: weight, bias, mean_scale."""
    norm = GraphNorm(7)
    bias = norm._parameters.pop("bias")
    mean_scale = norm._parameters.pop("mean_scale")
    norm._parameters |= {"bias": bias, "mean_scale": mean_scale}
    return norm


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_nodenorm_leaves_the_power_that_it_does_not_divide_by(power: float) -> None:
    x = tokens()
    found, before = (of.std(dim=-1, correction=0) for of in (NodeNorm(power, eps=0.0)(x), x))
    torch.testing.assert_close(found, before ** (1 - 1 / power))


EVERY = [partial(GraphNorm, 7), MeanNorm, NodeNorm, partial(ContraNorm, 7), partial(ContraNormD, 7)]
EVERY += [PairNorm, Centered]


@pytest.mark.parametrize("make", EVERY)
def test_padding_changes_no_token(make) -> None:
    """Also of a mask with one dimension, which hides tokens from all."""
    x, seen, layer = tokens(), torch.arange(20) < 15, drawn(make())
    given = x.where(seen[:, None], 1e3)
    alone, padded = ((of, 2 * of) if make is Centered else (of,) for of in (x[:15], given))
    found = [layer(*padded, Context(mask=mask)) for mask in (seen, seen[None])]
    assert torch.equal(*found)
    torch.testing.assert_close(found[0][:15], layer(*alone, PLAIN))


def test_pn_scs_subtracts_the_mean_of_the_input() -> None:
    x = tokens()
    expected = 1.5 * x / x.norm(dim=-1, keepdim=True) - x.mean(dim=0)
    assert torch.allclose(PairNorm("PN-SCS", scale=1.5)(x, Context()), expected, atol=1e-6)


LARGE = [*(partial(PairNorm, mode, 0.5) for mode in ("PN", "PN-SI", "PN-SCS"))]
LARGE += [partial(GraphNorm, 7), NodeNorm, MeanNorm]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("make", LARGE)
def test_half_precision_survives_norms_whose_squares_leave_its_range(make, masked: bool) -> None:
    x = (tokens() * 100).half()  # 100² · 7 is above float16's 65504
    context = Context(mask=torch.arange(20) < 15 if masked else None)
    exact = make()(x.float(), context)
    found = make().half()(x, context)
    assert found.dtype == torch.float16
    assert (found.float() - exact).abs().max() < 2e-3 * exact.abs().max()
    with torch.autocast("cpu", torch.bfloat16):  # a product of the mask would round the mean
        assert torch.equal(make()(x.float(), context), exact)


@pytest.mark.parametrize("normalize", [False, True])
def test_half_precision_survives_products_over_many_tokens(normalize: bool) -> None:
    x = (torch.randn(4096, 7, generator=torch.Generator().manual_seed(0)) * 5).half()
    layer = ContraNormD(7, normalize=normalize, layernorm=False)
    expected = layer(x.double(), PLAIN)
    torch.testing.assert_close(layer(x, PLAIN).double(), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision_keeps_what_is_left_where_the_softmax_is_nearly_the_identity(
    autocast,
) -> None:
    x = (torch.randn(16, 7, generator=torch.Generator().manual_seed(0))).bfloat16()
    layer = ContraNormD(7, layernorm=False)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = layer(x, PLAIN)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), layer(x.double(), PLAIN), rtol=0.01, atol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda s: PairNorm(scale=s), lambda s: Centered(s), lambda s: ContraNorm(7, s)]
)
def test_tensor_options_take_the_type_of_the_tokens(make) -> None:
    x, option = tokens().half(), torch.tensor([[0.5]])
    inputs = (x, x) if isinstance(make(1.0), Centered) else (x,)
    found, expected = (make(own)(*inputs) for own in (option, 0.5))
    assert found.dtype == torch.float16
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("mode", ["PN", "PN-SI"])
def test_the_epsilon_of_pairnorm_is_inside_the_root(mode: str) -> None:
    x = torch.randn(20, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = x - x.mean(dim=0)
    squares = y.square().sum(dim=-1, keepdim=True)
    root = (0.3 + (squares.mean() if mode == "PN" else squares)).sqrt()
    assert torch.allclose(PairNorm(mode, 2.0, eps=0.3)(x, Context()), 2 * y / root, atol=1e-12)


def test_groups_of_tokens_that_are_nearly_equal_keep_their_variance() -> None:
    """The reference has two passes in float64; in float32 squares of means would cancel."""
    x = 5 + 1e-3 * random_tokens(300, 7, seed=1)
    norm = drawn(DiffGroupNorm(7, 3, 1.0, eps=0.0)).double().train()
    y = norm.group(x)[..., None].softmax(dim=-2) * x[:, None, :]
    normed = (y - y.mean(dim=0)) / y.std(dim=0, correction=0)
    weight, bias = (own.view(3, 7) for own in (norm.norm.weight, norm.norm.bias))
    expected = x + (weight * normed + bias).sum(dim=1)
    torch.testing.assert_close(norm(x), expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(norm.float()(x.float()), expected.float(), rtol=0.01, atol=0.01)


def test_a_converted_group_norm_and_an_empty_batch_keep_their_statistics() -> None:
    x = random_tokens(6, 7, seed=1)
    norm = drawn(DiffGroupNorm(7)).train()
    norm(x), norm(x[:0])
    assert norm.norm.running_var.isfinite().all()
    expected = norm.eval()(x)
    converted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(norm)
    torch.testing.assert_close(converted(x), expected)


def test_no_tokens_have_finite_gradients() -> None:
    norm = drawn(GraphNorm(7))
    norm(random_tokens(0, 7, seed=1)).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in norm.parameters())


@pytest.mark.parametrize("kind", [BatchNorm, DiffGroupNorm])
def test_statistics_of_a_batch_leave_out_padding(kind: type) -> None:
    x, mask = random_tokens(3, 6, 7, seed=1), torch.arange(6) < torch.tensor([[6], [1], [3]])
    norm = drawn(kind(7)).train()
    found = norm(x, Context(mask=mask[:, None, :]))
    assert torch.allclose(found[mask], norm(x[mask]), atol=1e-12)
    with pytest.raises(InputError, match="2 tokens or more in training"):
        norm(x[0, :1])


def test_pairnorm_keeps_the_total_pairwise_distance() -> None:
    """Zhao and Akoglu, Eq. 9: Σ_ij ‖x_i − x_j‖² = 2 n² s² for any input."""
    for x in (tokens(), tokens() * 50, tokens().exp()):
        out = PairNorm("PN", scale=2.0)(x, Context())
        assert torch.cdist(out, out).square().sum().item() == pytest.approx(2 * 20**2 * 4, rel=1e-5)
