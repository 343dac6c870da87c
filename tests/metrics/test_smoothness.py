"""Laws of the smoothness metrics."""

import math
from functools import partial
from inspect import signature

import pytest
import torch
from tokens import random_tokens as draw
from torch import Tensor
from torch_geometric.nn import DiffGroupNorm

from oversmoothing import metrics
from oversmoothing.errors import InputError
from oversmoothing.metrics import graphs, smoothness

PATH = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


def with_spectrum(sigma: Tensor, seed: int = 0) -> Tensor:
    """A matrix with random singular vectors and the given singular values."""
    u, v = (torch.linalg.qr(draw(len(sigma), len(sigma), seed=seed + i))[0] for i in (0, 1))
    return u * sigma @ v.mT


def test_ranks_of_zero_of_one_direction_at_any_scale_and_of_the_identity() -> None:
    line = torch.outer(draw(30), draw(20, seed=1))
    known = [(torch.zeros(5, 4), 0), (torch.eye(100), 100)]
    for x, expected in (*known, *((line * scale, 1) for scale in (1.0, 1e-200, 1e200))):
        assert smoothness.rank(x) == expected
        assert smoothness.effective_rank(x).item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_nan_and_spoils_no_neighbour(bad: float) -> None:
    x = torch.eye(6).repeat(2, 1, 1)
    x[0, 5, 3] = bad
    for metric in (smoothness.rank, smoothness.effective_rank):
        values = metric(x)
        assert values[0].isnan() and values[1].item() == pytest.approx(6)
    of_tokens = (smoothness.norm, smoothness.token_variance, smoothness.mean_share,
                 smoothness.rank_one_distance)  # fmt: skip
    for metric in (*of_tokens, smoothness.cosine):
        assert metric(x).isnan().tolist() == [True, False], metric
    for metric in (graphs.dirichlet_energy, graphs.mad):
        assert metric(x, PATH).isnan().tolist() == [True, False]  # no edge has the bad node


def test_rank_counts_relative_to_the_frobenius_norm() -> None:
    sigma = torch.tensor([1.0, 1.001e-3, 0.999e-3, 0.0], dtype=torch.float64)
    sigma[0] = (1 - sigma[1:].square().sum()).sqrt()
    assert smoothness.rank(7 * with_spectrum(sigma)) == 2
    assert smoothness.rank(with_spectrum(sigma).float()) == 2
    assert smoothness.rank(with_spectrum(sigma), eps=0.9e-3) == 3


def test_gram_matrix_is_exact_at_the_threshold() -> None:
    """Values 1e-9 (relative) above and below 1e-3 are told apart, as an SVD does."""
    for sign, expected in ((1, 100), (-1, 1)):
        tail = torch.full((99,), 1e-3 * (1 + sign * 1e-9), dtype=torch.float64)
        head = (1 - tail.square().sum()).sqrt()
        x = with_spectrum(torch.cat([head[None], tail]))
        assert smoothness.rank(x) == expected
        exact, fast = (smoothness.singular_values(x, exact) for exact in (True, False))
        assert (exact - fast).abs().max() < 2e-12


@pytest.mark.parametrize("decades", [1, 4, 8, 16])
@pytest.mark.parametrize("clustered", [False, True])
def test_effective_rank_is_within_its_stated_error(decades: int, clustered: bool) -> None:
    sigma = torch.logspace(0, -decades, 100, dtype=torch.float64)
    if clustered:
        sigma[3:] = 10.0**-decades
    p = sigma / sigma.sum()
    expected = torch.special.entr(p).sum().exp()
    assert (smoothness.effective_rank(with_spectrum(sigma)) - expected).abs() < 1e-4


def test_small_eps_takes_the_exact_way() -> None:
    sigma = torch.tensor([1.0, 1e-10, 1e-14], dtype=torch.float64)
    assert smoothness.rank(with_spectrum(sigma), eps=1e-11) == 2


def test_batches_and_transposes_change_nothing() -> None:
    x = draw(2, 3, 12, 5)
    for metric in (smoothness.rank, smoothness.effective_rank):
        values = metric(x)
        torch.testing.assert_close(values, metric(x.mT))
        torch.testing.assert_close(values[1, 2], metric(x[1, 2]))


def test_mean_cosine_is_the_mean_over_pairs() -> None:
    x = draw(2, 7, 4)
    for one, value in zip(x, smoothness.cosine(x)):
        pairs = [torch.cosine_similarity(one[i], one[j], 0) for i in range(7) for j in range(i)]
        torch.testing.assert_close(value, torch.stack(pairs).mean())
    assert smoothness.cosine(torch.ones(1, 3)).isnan()


def test_token_variance_is_the_mean_squared_distance_from_the_mean() -> None:
    x = draw(5, 4)
    around_mean = (x - x.mean(0)).square().sum() / 5
    torch.testing.assert_close(smoothness.token_variance(x), around_mean)


def test_dirichlet_energy_sees_edges_only() -> None:
    ramp = torch.arange(4.0)[:, None]
    assert graphs.dirichlet_energy(ramp, PATH).item() == pytest.approx(6 / 4)


def test_self_loops_change_nothing() -> None:
    x, loops = draw(4, 3), torch.cat([PATH, torch.arange(4).repeat(2, 1)], dim=1)
    for measure in (graphs.dirichlet_energy, graphs.mad):
        assert measure(x, loops) == measure(x, PATH)


def test_mean_average_distance() -> None:
    scaled = torch.arange(1.0, 5)[:, None] * torch.ones(4, 3)
    assert graphs.mad(scaled, PATH).item() == pytest.approx(0, abs=1e-12)
    axes = torch.eye(4)
    assert graphs.mad(axes, PATH).item() == pytest.approx(1)
    x = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [5, 5]])  # distances 1, 1, 1, none
    lonely = PATH[:, :4]
    assert graphs.mad(x, lonely).item() == pytest.approx(1)
    assert graphs.mad(x, PATH[:, :0]).isnan()


def test_share_of_the_mean_token() -> None:
    x = draw(3, 50, 8)
    equal = x[:, :1].expand_as(x)
    centered = x - x.mean(dim=-2, keepdim=True)
    torch.testing.assert_close(smoothness.mean_share(equal), torch.ones(3).double())
    assert smoothness.mean_share(centered).max() < 1e-12
    total = x.square().sum(dim=(-2, -1))
    expected = 1 - 50 * smoothness.token_variance(x) / total
    for scale in (1.0, 1e-200, 1e200):
        torch.testing.assert_close(smoothness.mean_share(scale * x), expected)
    assert smoothness.mean_share(torch.zeros(2, 3)).isnan()


def test_pieces_of_tokens_and_edges_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(2, 70, 5)
    x[0, 3] = 0
    of_tokens = (smoothness.cosine, smoothness.mean_share, smoothness.norm)
    of_edges = (graphs.dirichlet_energy, graphs.mad)
    metrics = [*of_tokens, smoothness.effective_rank, *(partial(f, edges=PATH) for f in of_edges)]
    whole = [metric(x) for metric in metrics]
    monkeypatch.setattr(smoothness, "AT_ONCE", 1)
    for metric, expected in zip(metrics, whole):
        torch.testing.assert_close(metric(x), expected)
    x[1, 60, 2] = math.inf
    assert smoothness.effective_rank(x).isnan().tolist() == [False, True]


def test_the_mean_norm_is_euclidean() -> None:
    x = draw(3, 50, 8)
    expected = x.square().sum(dim=-1).sqrt().mean(dim=-1)
    torch.testing.assert_close(smoothness.norm(x), expected)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (40, 4)])
def test_ranks_have_gradients(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoothness, "AT_ONCE", 64)  # the longest is in pieces
    x = torch.randn(2, *shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(smoothness.effective_rank, x)
    assert torch.autograd.gradcheck(smoothness.singular_values, x)
    assert torch.autograd.gradcheck(lambda x: smoothness.singular_values(x, exact=True), x)


def test_edges_and_tokens_of_a_wrong_shape_are_refused() -> None:
    wrong = [torch.zeros(shape, dtype=torch.long) for shape in ((3, 2), (2,), (1, 2, 3))]
    for edges in (*wrong, torch.tensor([[0, -1], [1, 0]])):
        for measure in (graphs.dirichlet_energy, graphs.mad):
            with pytest.raises(InputError, match="^edges: "):
                measure(draw(5, 4), edges)
    for weight in (torch.ones(5), torch.ones(6, 1)):
        with pytest.raises(InputError, match="^weight: "):
            graphs.rayleigh_quotient(draw(4, 3), PATH, weight)
    with pytest.raises(InputError, match="^labels: "):
        graphs.group_distance_ratio(draw(4, 3), torch.zeros(3))
    for of_tokens in (smoothness.cosine, smoothness.effective_rank, smoothness.mean_share):
        for shape in ((4,), (0, 4), (2, 5, 0)):
            with pytest.raises(InputError, match="^x: "):
                of_tokens(torch.ones(shape))


def test_what_is_no_tensor_of_numbers_is_refused_by_every_measure() -> None:
    edges, labels = PATH, torch.tensor([0, 1, 0, 1])
    rest = {"edges": edges, "labels": labels, "other": torch.ones(2, 4, 4)}
    for name in metrics.__all__:
        measure = getattr(metrics, name)
        key, *others = signature(measure).parameters
        given = {other: rest[other] for other in others if other in rest}
        x = torch.ones(2, 4, 4)
        assert measure(x, **given).dtype == torch.float64
        for wrong in (x.numpy(), None, x * 1j, x.to_sparse(), x.to("meta"), x[0, 0]):
            with pytest.raises(InputError, match=f"^{key}: "):
                measure(wrong, **given)
        for other in given:
            for wrong in ([1], None, torch.ones(4) * 1j):
                with pytest.raises(InputError, match=f"^{other}: "):
                    measure(x, **{**given, other: wrong})


def test_ranks_of_a_known_spectrum() -> None:
    sigma = torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)
    x = with_spectrum(sigma)
    assert smoothness.stable_rank(x).item() == pytest.approx(21 / 16)
    centered = x - x.mean(dim=0)
    expected = centered.square().sum() / torch.linalg.svdvals(centered)[0] ** 2
    torch.testing.assert_close(smoothness.centered_stable_rank(x), expected)
    assert smoothness.stable_rank(torch.zeros(3, 2)) == 0


def test_the_distance_to_rank_one_is_that_of_its_definition() -> None:
    line = torch.outer(draw(30), draw(20, seed=1))
    for scale in (1.0, -1e-200, 1e200):
        assert smoothness.rank_one_distance(line * scale).item() == pytest.approx(0, abs=1e-12)
    x = torch.tensor([[-4.0, 0.0, 1.0], [1.0, 2.0, 0.0]], dtype=torch.float64)
    near = torch.outer(torch.tensor([4.0, -1.0]), x[0].float()).double()  # token 0, channel 0
    units = (of / torch.linalg.svdvals(of).sum() for of in (x, near))
    expected = torch.linalg.svdvals(next(units) - next(units)).sum()
    torch.testing.assert_close(smoothness.rank_one_distance(x), expected)
    assert smoothness.rank_one_distance(torch.zeros(3, 2)).isnan()


def test_one_long_token_is_an_outlier_and_the_others_are_measured_without() -> None:
    x = draw(2, 30, 8)
    long = x.clone()
    long[0, 7] *= 100
    others = long[0, torch.arange(30) != 7]
    for name in ("effective_rank", "mean_share"):
        found = getattr(smoothness, f"{name}_without_outliers")(long)
        plain = getattr(smoothness, name)
        torch.testing.assert_close(found, torch.stack([plain(others), plain(x[1])]))
    norms = long.norm(dim=-1)
    ratio = norms.amax(-1) / norms.sort().values[:, 14]
    torch.testing.assert_close(smoothness.max_norm_ratio(long), ratio)
    share = norms.square().amax(-1) / norms.square().sum(-1)
    torch.testing.assert_close(smoothness.largest_token_share(long), share)
    channels = long.square().sum(-2)
    channel = channels.amax(-1) / channels.sum(-1)
    torch.testing.assert_close(smoothness.largest_channel_share(long), channel)


OF_TOKENS = ["cosine", "effective_rank", "stable_rank", "centered_stable_rank", "mean_share"]
OF_TOKENS += ["norm", "rank_one_distance", "token_variance", "max_norm_ratio"]
OF_TOKENS += ["largest_token_share", "largest_channel_share"]
OF_TOKENS += ["effective_rank_without_outliers", "mean_share_without_outliers"]


def test_tokens_that_do_not_count_change_nothing() -> None:
    x, lengths = draw(3, 9, 5), (9, 4, 6)
    keep = torch.arange(9) < torch.tensor(lengths)[:, None]
    padded = smoothness.Tokens(x.masked_fill(~keep[..., None], math.nan), keep)
    for measure in (getattr(smoothness, name) for name in OF_TOKENS):
        alone = torch.stack([measure(of[:n]) for of, n in zip(x, lengths)])
        torch.testing.assert_close(measure(padded), alone, rtol=1e-6, atol=1e-12)


def test_across_samples_equal_outputs_have_cosine_and_rank_one() -> None:
    x = draw(6, 10, 8)
    units = torch.nn.functional.normalize(x, dim=-1)
    pairs = [(units[i] @ units[j].mT).mean() for i in range(6) for j in range(6) if i != j]
    assert smoothness.sample_cosine(x).item() == pytest.approx(torch.stack(pairs).mean().item())
    expected = smoothness.effective_rank(x.mean(dim=1))
    assert smoothness.rankme(x).item() == pytest.approx(expected.item(), rel=1e-5)
    same = x[:1].expand_as(x)
    assert smoothness.rankme(same).item() == pytest.approx(1, abs=1e-3)
    assert smoothness.sample_cosine(x[:1]).isnan()


@pytest.mark.parametrize("loops", [False, True])
def test_the_rayleigh_quotient_is_that_of_the_normalised_laplacian(loops: bool) -> None:
    x, weight = draw(4, 3), torch.tensor([1.0, 1, 2, 2, 0.5, 0.5], dtype=torch.float64)
    A = torch.zeros(4, 4).double().index_put_((PATH[0], PATH[1]), weight) + torch.eye(4) * loops
    by = A.sum(1).rsqrt()
    L = torch.eye(4) - by[:, None] * A * by
    expected = ((x.mT @ L @ x).trace() / x.square().sum()).item()
    measure = graphs.rayleigh_quotient_loops if loops else graphs.rayleigh_quotient
    assert measure(x, PATH, weight).item() == pytest.approx(expected)
    assert measure(7e200 * x, PATH, weight).item() == pytest.approx(expected)
    constant = A.sum(1).sqrt()[:, None] * torch.ones(1, 3)
    assert measure(constant, PATH, weight).item() == pytest.approx(0, abs=1e-12)
    energy = x.mT @ (torch.diag(A.sum(1)) - A) @ x  # without loops or with them
    found = graphs.dirichlet_energy(x, PATH, weight).item()
    assert found == pytest.approx(2 * energy.trace().item() / 4)


def test_gaps_of_near_and_far_nodes_and_of_classes() -> None:
    ring = torch.stack([torch.arange(20), (torch.arange(20) + 1) % 20])
    edges = torch.cat([ring, ring.flip(0)], dim=1)
    angle = torch.arange(20) * math.tau / 20
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    hops = torch.tensor([min(k, 20 - k) for k in range(20)])
    distance = 1 - (hops * math.tau / 20).cos()
    near, far = (hops > 0) & (hops <= 3), hops >= 8
    expected = distance[far].mean() - distance[near].mean()
    assert graphs.mad_gap(x, edges).item() == pytest.approx(expected.item(), abs=1e-6)
    touching = graphs.mad_gap(x, edges, near=3, far=4).item()  # every other node is near or far
    expected_of_all = distance[hops > 3].mean() - distance[near].mean()
    assert touching == pytest.approx(expected_of_all.item(), abs=1e-6)
    labels = torch.tensor([5, 5, -1, 2, 2])
    apart = torch.tensor([[0.0], [1], [99], [10], [11]])
    # within: (0 + 1 + 1 + 0) / 4 = 0.5 for both classes; between: (10 + 11 + 9 + 10) / 4 = 10
    assert graphs.group_distance_ratio(apart, labels).item() == pytest.approx(20)
    order = torch.randperm(20)  # nodes have no order
    moved = graphs.mad_gap(x[order], order.argsort()[edges])
    assert moved.item() == pytest.approx(expected.item(), abs=1e-6)


def test_the_group_distance_ratio_is_that_of_its_pairs() -> None:
    x, labels = draw(2, 9, 4), torch.tensor([0, 2, 1, 1, 0, -1, 2, 1, 0])
    pairs = [[(a, b) for a in range(9) for b in range(9) if (labels[a], labels[b]) == (i, j)]
             for i in range(3) for j in range(3)]  # fmt: skip
    means = [torch.stack([(x[:, a] - x[:, b]).norm(dim=-1) for a, b in of]).mean(0) for of in pairs]
    own = (means[0] + means[4] + means[8]) / 3
    between = (sum(means) - 3 * own) / 6
    found = graphs.group_distance_ratio(x, labels)
    torch.testing.assert_close(found, between / own)
    order = torch.randperm(9)
    torch.testing.assert_close(graphs.group_distance_ratio(x[:, order], labels[order]), found)
    torch.testing.assert_close(graphs.group_distance_ratio(7e200 * x, labels), found)
    assert graphs.group_distance_ratio(x, labels.clamp(max=0)).isnan().all()  # a single class
    none = graphs.group_distance_ratio(x, torch.full((9,), -1))  # a sentence without labels
    assert none.shape == (2,) and none.isnan().all()
    theirs = DiffGroupNorm.group_distance_ratio(x[0, :4], torch.tensor([0, 0, 1, 1]), eps=0)
    ours = graphs.group_distance_ratio(x[0, :4], torch.tensor([0, 0, 1, 1])).item()
    assert theirs == pytest.approx(2 * ours)  # the factor K / (K − 1) of two classes


def test_the_default_type_of_torch_changes_no_measure() -> None:
    A, labels = draw(2, 3, 4, 4).softmax(dim=-1), torch.tensor([0, 1, 1, 0])
    given = {"x": draw(2, 4, 3), "edges": PATH, "labels": labels, "A": A, "other": A.flip(-1)}
    for name in metrics.__all__:
        measure = getattr(metrics, name)
        needed = [
            key for key, own in signature(measure).parameters.items() if own.default is own.empty
        ]
        expected = measure(*map(given.get, needed))
        torch.set_default_dtype(torch.float64)
        try:
            found = measure(*map(given.get, needed))
        finally:
            torch.set_default_dtype(torch.float32)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
