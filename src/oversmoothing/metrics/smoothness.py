"""Measures of how alike tokens or nodes are: cosine, ranks, share of the mean, outliers.

All functions take tokens x (..., N, C) with any leading dimensions, or :class:`Tokens`, compute in
float64 for inputs of any type, and return float64 (...). A matrix with a non-finite entry gives
NaN, not an error. Tokens without entries raise InputError.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.linalg import matrix_norm

from oversmoothing.checks import check_tensor
from oversmoothing.errors import InputError

GRAM_FLOOR = 1e-6  # relative size below which singular values of the Gram matrix are inaccurate
AT_ONCE = 1 << 16  # entries of a piece in float64, or 1/PIECES of the matrix if that is more
PIECES = 32
TOGETHER = 1 << 17  # entries of several samples that are measured at a time
OUTLIER = 5.0  # times the median norm; longer tokens are outliers
TINY = 1e-300  # lower bound of the norms of tokens, so that a zero token has no NaN


class Tokens:
    """Tokens and what several measures of them share, each computed once.

    No float64 copy of more than a few samples is held at a time.

    Args:
        x: tokens (..., N, C).
        keep: true for the tokens that count, (..., N); None: all.
        which: indices of the samples that are meant, if these are only some of B, (b,); None: all.
    """

    def __init__(self, x: Tensor, keep: Tensor | None = None, which: Tensor | None = None) -> None:
        check_tensor("x", x)
        if x.dim() < 2 or 0 in x.shape[-2:]:
            raise InputError(f"x: expected tokens (..., N, C), both above 0, got {tuple(x.shape)}")
        self.x, self.keep, self.which = x, keep, which

    @classmethod
    def of(cls, x: "Tensor | Tokens") -> "Tokens":
        """Returns tokens as they are, or a tensor as tokens."""
        return x if isinstance(x, Tokens) else cls(x)

    @cached_property
    def count(self) -> Tensor:
        """Number of tokens that count, (...)."""
        if self.keep is None:
            return torch.full_like(self.scale, self.x.shape[-2])
        keep = self.keep if self.which is None else self.keep[self.which]
        return keep.sum(dim=-1).to(self.scale)

    @property
    def scale(self) -> Tensor:
        """What x is divided by so that its squares fit into float64, (...): max |x|, often just 1.

        NaN if an entry is not finite.
        """
        return self.sums[0]

    def whole(self) -> Tensor:
        """x / scale in float64, with zeros for tokens that do not count."""
        x = double(self.x if self.keep is None else self.x.masked_fill(~self.keep[..., None], 0))
        return x / self.scale[..., None, None]

    @cached_property
    def sums(self) -> tuple[Tensor, ...]:
        """The scale (...), and of x / scale: ‖xᵢ‖ (..., N), Σ xᵢ/‖xᵢ‖, Σ xᵢ, Σ xᵢ² (..., C)."""
        joined = _joined([_sums(x, keep) for x, keep in self._groups()])
        finite = joined[1].sum(dim=-1).isfinite()
        if not finite.all():
            joined = [of.masked_fill(~finite.view(-1, *[1] * (of.dim() - 1)), torch.nan)
                      for of in joined]  # fmt: skip
        shape = self.x.shape[:-2] if self.which is None else self.which.shape
        return tuple(of.view((*shape, *of.shape[1:])) for of in joined)

    @cached_property
    def median(self) -> Tensor:
        """Median norm of the tokens of x / scale, (..., 1); of two in the middle the smaller."""
        norms = self.sums[1]
        keep = None if self.keep is None else self.keep.to(norms.device)
        norms = norms if keep is None else norms.masked_fill(~keep, torch.nan)
        return norms.nanmedian(dim=-1, keepdim=True).values

    @cached_property
    def inliers(self) -> "tuple[Tensor, Tokens] | None":
        """Which samples have outliers (...), and their other tokens; None without outliers."""
        near = self.sums[1] <= OUTLIER * self.median
        near = near if self.keep is None else near & self.keep.to(near.device)
        some = (near.sum(dim=-1) < self.count) & self.scale.isfinite()
        if not some.any():
            return None
        which = some.flatten().nonzero()[:, 0].to(self.x.device)
        x, near = self.x.reshape(-1, *self.x.shape[-2:]), near.reshape(-1, near.shape[-1])
        return some, Tokens(x, near.to(x.device), which)

    @cached_property
    def singular_values(self) -> Tensor:
        """Singular values of x/‖x‖_F, descending, from the smaller Gram matrix."""
        _, norms, *_ = self.sums
        scales, bad = self.scale.reshape(-1), bool(self.scale.isnan().any())
        start, found = 0, []
        for x, keep in self._groups():
            gram = _gram(x, keep, scales[start : start + len(x)])
            start += len(x)
            gram = gram.nan_to_num(0.0, 0.0, 0.0) if bad else gram
            squares = torch.linalg.eigvalsh(gram, UPLO="U")
            missing = min(x.shape[-2:]) - squares.shape[-1]  # those of tokens that do not count
            found.append((F.pad(squares, (missing, 0)) if missing else squares,))
        squares = _joined(found)[0].view((*norms.shape[:-1], -1)).flip(-1)
        energy = norms.square().sum(dim=-1, keepdim=True)
        sigma = (squares / nonzero(energy)).clamp_min(0).sqrt()
        return sigma.masked_fill(self.scale.isnan()[..., None], torch.nan) if bad else sigma

    def _groups(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yields a few samples at a time, (m, N, C) and (m, N)."""
        x = self.x.reshape(-1, *self.x.shape[-2:])
        few = max(1, len(x) // PIECES, TOGETHER // x[0].numel())
        if self.which is not None:
            return ((x[i], self.keep[i]) for i in self.which.split(few))  # type: ignore[index]
        keep = [None] * len(x) if self.keep is None else self.keep.reshape(len(x), -1).split(few)
        return zip(x.split(few), keep)


def _joined(groups: Sequence[tuple[Tensor, ...]]) -> list[Tensor]:
    return [torch.cat(of) if len(of) > 1 else of[0] for of in zip(*groups)]


def _sums(x: Tensor, keep: Tensor | None) -> tuple[Tensor, ...]:
    """See ``Tokens.sums``. Shapes: x (m, N, C), keep (m, N)."""
    scale = _scale(x, keep)
    norms, total, squares = [], torch.zeros(()), torch.zeros(())
    for y in _rows(x, keep, scale):
        norms.append(torch.linalg.vector_norm(y, dim=-1))
        inverse = norms[-1].clamp_min(TINY).reciprocal()
        total = total + torch.stack([inverse, torch.ones_like(inverse)], dim=-2) @ y
        squares = squares + y.square().sum(dim=-2)
    of_tokens = torch.cat(norms, dim=-1) if len(norms) > 1 else norms[0]
    return scale, of_tokens, total[:, 0], total[:, 1], squares


def _scale(x: Tensor, keep: Tensor | None) -> Tensor:
    """Returns max |x| in float64, and else 1, since squares of float32 fit into float64. (m,)."""
    if x.dtype != torch.float64:
        device = "cpu" if x.device.type == "mps" else x.device
        return torch.ones(len(x), dtype=torch.float64, device=device)
    values = x.detach() if keep is None else x.detach().masked_fill(~keep[..., None], 0)
    low, high = torch.aminmax(values.flatten(1), dim=1)
    return nonzero(torch.maximum(-low, high))


def _gram(x: Tensor, keep: Tensor | None, scale: Tensor) -> Tensor:
    """The smaller Gram matrix of x / scale; of a single sample, without tokens that do not count.

    Shapes: x (m, N, C), keep (m, N) -> (m, n, n), n ≤ min(N, C).
    """
    if keep is not None and len(x) == 1:
        x, keep = x[:, keep[0]], None
    if x.shape[-2] > x.shape[-1]:
        return reduce(torch.add, (y.mT @ y for y in _rows(x, keep, scale)))
    rows = [*_rows(x, keep, scale)]
    y = torch.cat(rows, dim=-2) if len(rows) > 1 else rows[0]
    return y @ y.mT


def _rows(x: Tensor, keep: Tensor | None, scale: Tensor) -> Iterator[Tensor]:
    """Yields x / scale in float64, all tokens or a few at a time if there are many."""
    rows = at_once(x)
    kept = [None] * x.shape[-2] if keep is None else keep.split(rows, dim=-1)
    for piece, some in zip(x.split(rows, dim=-2), kept):
        y = double(piece if some is None else piece.masked_fill(~some[..., None], 0))
        yield y / scale[:, None, None] if x.dtype == torch.float64 else y


Of = Tensor | Tokens


def cosine(x: Of) -> Tensor:
    """Mean cosine over the pairs i < j of tokens; a zero token has cosine 0, one token gives NaN.

    Uses Σ_{i≠j} x̂ᵢ·x̂ⱼ = ‖Σ x̂ᵢ‖² − Σ ‖x̂ᵢ‖², so that no N×N matrix is formed. Some papers average
    over all N² pairs, tokens with themselves included; with the result s that is ((N − 1) s + 1)/N.

    Shapes: x (..., N, C) -> (...).
    """
    t = Tokens.of(x)
    _, norms, directions, *_ = t.sums
    pairs = directions.square().sum(dim=-1) - (norms != 0).sum(dim=-1)
    return (pairs / (t.count * (t.count - 1))).masked_fill(t.count < 2, torch.nan)


def effective_rank(x: Of) -> Tensor:
    """exp(H(p)), p = σ/Σσ (Roy, Vetterli 2007): 1 for rank one, N for N equal singular values.

    The Gram matrix's noise (see :func:`singular_values`) adds at most 1e-4 at N = 100. There is no
    gradient where a singular value is 0. Some papers use p = σ²/Σσ²: smaller numbers.

    Shapes: x (..., N, C) -> (...); 0 for x = 0.
    """
    return effective_rank_of(Tokens.of(x).singular_values)


def stable_rank(x: Of) -> Tensor:
    """‖x‖_F² / σ₁², also called numerical rank; a long tail of small σ hardly counts.

    Shapes: x (..., N, C) -> (...); 0 for x = 0.
    """
    first = Tokens.of(x).singular_values[..., 0].square()
    return (1 / nonzero(first)).masked_fill(first == 0, 0.0)


def centered_stable_rank(x: Of) -> Tensor:
    """:func:`stable_rank` of x − 1x̄ᵀ, the tokens without their mean.

    Shapes: x (..., N, C) -> (...); 0 for equal tokens.
    """
    t = Tokens.of(x)
    mean = (t.sums[3] / t.count[..., None])[..., None, :]
    return stable_rank(Tokens(t.whole() - mean, t.keep))


def rank_one_distance(x: Of) -> Tensor:
    """Distance to a matrix of rank one (Roth, 2024, arXiv:2407.11876): 0 to 2, 0 for rank one.

    ‖X/‖X‖ − uvᵀ/‖uvᵀ‖‖ in the nuclear norm, where v is the token and u the channel with the largest
    1-norm, and the sign is that of their common entry.

    Shapes: x (..., N, C) -> (...); NaN for x = 0.
    """
    t = Tokens.of(x)
    lost = t.scale.isnan() | (t.sums[1].sum(dim=-1) == 0)
    X = t.whole().masked_fill(lost[..., None, None], 1.0)
    i, j = (X.abs().sum(dim=dim).argmax(dim=-1)[..., None, None] for dim in (-1, -2))
    v, u = X.take_along_dim(i, dim=-2), X.take_along_dim(j, dim=-1)
    u = torch.where(u.take_along_dim(i, dim=-2) < 0, -u, u)
    X, near = (of / matrix_norm(of, "nuc", keepdim=True) for of in (X, u @ v))
    return matrix_norm(X - near, "nuc").masked_fill(lost, torch.nan)


def mean_share(x: Of) -> Tensor:
    """N‖x̄‖² / Σ‖xᵢ‖², the share of the mean token in the second moment of the tokens.

    It is 1 if all tokens are equal, 0 if their mean is 0, and about 1/N for independent random
    tokens around 0. Unlike the mean cosine it weighs tokens by their norm. The relative distance
    to the nearest matrix 1yᵀ in the Frobenius norm (Dong et al. 2021) is √(1 − mean_share).

    Shapes: x (..., N, C) -> (...); NaN for x = 0.
    """
    t = Tokens.of(x)
    _, norms, _, total, _ = t.sums
    return total.square().sum(dim=-1) / (t.count * norms.square().sum(dim=-1))


def norm(x: Of) -> Tensor:
    """Mean 2-norm of the tokens; some papers print ‖x‖_F, which grows with N.

    Shapes: x (..., N, C) -> (...).
    """
    t = Tokens.of(x)
    return t.sums[1].sum(dim=-1) * t.scale / t.count


def token_variance(x: Of) -> Tensor:
    """(1/N) Σ ‖xᵢ − x̄‖², the variance around the mean token (ContraNorm's paper).

    ``x.var(dim=-2)`` of torch has N − 1, and one value per channel.

    Shapes: x (..., N, C) -> (...).
    """
    t = Tokens.of(x)
    apart = t.whole() - (t.sums[3] / t.count[..., None])[..., None, :]
    if t.keep is not None:
        apart = apart.masked_fill(~t.keep[..., None].to(apart.device), 0)
    return apart.square().sum(dim=(-2, -1)) / t.count * t.scale.square()


def max_norm_ratio(x: Of) -> Tensor:
    """Norm of the longest token, divided by the median norm (of two in the middle the smaller).

    High-norm tokens: artifacts of vision models (Darcet et al. 2024), massive activations of
    language models (Sun et al. 2024), who count entries above 100 and 1,000 times their median.

    Shapes: x (..., N, C) -> (...); NaN for x = 0, infinite if most tokens are 0.
    """
    t = Tokens.of(x)
    return t.sums[1].amax(dim=-1) / t.median[..., 0]


def largest_token_share(x: Of) -> Tensor:
    """maxᵢ ‖xᵢ‖² / Σ‖xᵢ‖², the share of one token in the energy; 1/N if all norms are equal.

    Shapes: x (..., N, C) -> (...); NaN for x = 0.
    """
    energy = Tokens.of(x).sums[1].square()
    return energy.amax(dim=-1) / energy.sum(dim=-1)


def largest_channel_share(x: Of) -> Tensor:
    """The share of one channel in the energy Σ‖xᵢ‖²; 1/C if all have the same.

    Shapes: x (..., N, C) -> (...); NaN for x = 0.
    """
    energy = Tokens.of(x).sums[4]
    return energy.amax(dim=-1) / energy.sum(dim=-1)


def effective_rank_without_outliers(x: Of) -> Tensor:
    """:func:`effective_rank` without tokens longer than 5 times the median norm.

    Shapes: x (..., N, C) -> (...); 0 for x = 0.
    """
    return _without_outliers(effective_rank, Tokens.of(x))


def mean_share_without_outliers(x: Of) -> Tensor:
    """:func:`mean_share` without tokens longer than 5 times the median norm.

    Shapes: x (..., N, C) -> (...); NaN for x = 0.
    """
    return _without_outliers(mean_share, Tokens.of(x))


def _without_outliers(measure: Callable[[Of], Tensor], t: Tokens) -> Tensor:
    """Measures all samples, and again without their outliers those that have some."""
    if t.inliers is None:
        return measure(t)
    some, others = t.inliers
    return measure(t).masked_scatter(some, measure(others))


def singular_values(x: Of, exact: bool = False) -> Tensor:
    """Singular values of x/‖x‖_F, descending; all 0 where x = 0.

    They are computed from the eigenvalues of the smaller Gram matrix, which is faster than an SVD.
    Rounding changes an eigenvalue by about 1e-15 and a singular value σ by 5e-16/σ: 5e-13 at the
    threshold 1e-3. Values below about 5e-8 are noise. There is no gradient where one of them is 0.

    Args:
        exact: use an SVD, for ratios of singular values below 1e-6.

    Shapes: x (..., N, C) -> (..., min(N, C)).
    """
    t = Tokens.of(x)
    if not exact:
        return t.singular_values
    unit = t.whole().masked_fill(t.scale.isnan()[..., None, None], 0.0)
    sigma = torch.linalg.svdvals(unit / nonzero(matrix_norm(unit, keepdim=True)))
    return sigma.masked_fill(t.scale.isnan()[..., None], torch.nan)


def rank(x: Of, eps: float = 1e-3) -> Tensor:
    """Number of singular values of x/‖x‖_F above eps (Centered Self-Attention Layers, Sec. 4.1).

    ``torch.linalg.matrix_rank`` compares them with the largest one.

    Shapes: x (..., N, C) -> (...); 0 for x = 0.
    """
    return rank_of(singular_values(x, exact=eps < GRAM_FLOOR), eps)


def rank_of(sigma: Tensor, eps: float = 1e-3) -> Tensor:
    """:func:`rank` from the :func:`singular_values`. Shapes: (..., K) -> (...)."""
    return (sigma > eps).sum(dim=-1).double() + 0 * sigma[..., 0]  # keeps NaN


def effective_rank_of(sigma: Tensor) -> Tensor:
    """:func:`effective_rank` from the :func:`singular_values`. Shapes: (..., K) -> (...)."""
    total = sigma.sum(dim=-1, keepdim=True)
    entropy = torch.special.entr(sigma / nonzero(total)).sum(dim=-1)
    return entropy.exp().masked_fill(total[..., 0] == 0, 0.0)


class Samples:
    """Gathers the tokens of samples, for measures across them."""

    def __init__(self) -> None:
        self.pooled: list[Tensor] = []
        self.total, self.squares, self.count = torch.zeros(()), torch.zeros(()), 0

    def add(self, x: Of) -> "Samples":
        """Adds the samples (B, N, C)."""
        t = Tokens.of(x)
        if t.x.dim() != 3:
            raise InputError(f"x: expected samples of tokens (B, N, C), got {tuple(t.x.shape)}")
        scale, _, directions, total, _ = t.sums
        mean = directions / t.count[:, None]
        self.total = self.total.to(mean) + mean.sum(dim=0)
        self.squares = self.squares.to(mean) + mean.square().sum()
        self.count += len(mean)
        self.pooled.append((total * (scale / t.count)[:, None]).float())
        return self

    def cosine(self) -> Tensor:
        """See :func:`sample_cosine`."""
        pairs = self.count * (self.count - 1)
        return (self.total.square().sum() - self.squares) / (pairs or torch.nan)

    def rank(self) -> Tensor:
        """See :func:`rankme`."""
        return effective_rank(torch.cat(self.pooled))


def sample_cosine(x: Of) -> Tensor:
    """Mean cosine of two tokens of different samples; 1: the output does not depend on the input.

    For embeddings of words it is called anisotropy (Ethayarajh 2019).

    Shapes: x (B, N, C) -> (); NaN for one sample.
    """
    return Samples().add(x).cosine()


def rankme(x: Of) -> Tensor:
    """:func:`effective_rank` of the mean tokens of B samples (RankMe, Garrido et al. 2023).

    Garrido et al. add 1e-7 to p.

    Shapes: x (B, N, C) -> (); at most min(B, C).
    """
    return Samples().add(x).rank()


def double(x: Tensor) -> Tensor:
    """Converts x to float64; on Apple's GPUs, which have no float64, it is moved to the CPU."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def nonzero(x: Tensor) -> Tensor:
    """Replaces 0 by 1."""
    return x.masked_fill(x == 0, 1.0)


def at_once(x: Tensor) -> int:
    """Returns the number of tokens (..., N, C) whose float64 copies are formed at a time."""
    return max(1, AT_ONCE // x.shape[-1], x.shape[-2] // PIECES)
