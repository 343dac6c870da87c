"""The measures of a layer by name, those that the user chooses, and functions of the user."""

from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from oversmoothing import metrics
from oversmoothing.diagnosis.calls import explained
from oversmoothing.diagnosis.samples import Piece
from oversmoothing.errors import InputError, meant
from oversmoothing.metrics import smoothness

Of = Callable[..., Any]
TOKENS = (
    *("cosine", "effective_rank", "mean_share", "norm", "stable_rank", "max_norm_ratio"),
    *("largest_token_share", "largest_channel_share", "effective_rank_without_outliers"),
    *("mean_share_without_outliers", "centered_stable_rank", "rank", "rank_one_distance"),
    "token_variance",
)
EDGES = ("dirichlet_energy", "mad", "rayleigh_quotient", "rayleigh_quotient_loops", "mad_gap")
OF_TOKENS: dict[str, Of] = {name: getattr(metrics, name) for name in TOKENS}
OF_EDGES: dict[str, Of] = {name: getattr(metrics, name) for name in EDGES}
OF_LABELS: dict[str, Of] = {"group_distance_ratio": metrics.group_distance_ratio}
OF_MAPS = ("attention_similarity", "attention_entropy", "attention_sink", "attention_gap")
BESIDE = "attention_cosine"  # of the map of a layer and that of the layer before
OF_SAMPLES: dict[str, Callable[[smoothness.Samples], Tensor]] = {
    "sample_cosine": smoothness.Samples.cosine,
    "rankme": smoothness.Samples.rank,
}
OF_GRADIENT: dict[str, Of] = {
    f"gradient_{name}": OF_TOKENS[name] for name in ("norm", "cosine", "effective_rank")
}
MEASURES = (*OF_TOKENS, *OF_EDGES, *OF_LABELS, *OF_MAPS, BESIDE, *OF_SAMPLES, *OF_GRADIENT)
ON_REQUEST = {  # slow, or like another one
    *("centered_stable_rank", "rank", "rank_one_distance", "token_variance", "attention_gap"),
    "mad_gap",
}
DEFAULT = tuple(name for name in MEASURES if name not in ON_REQUEST)
SAMPLES = 8  # number of samples from which on measures across them are shown by default
LEGEND = {  # ↑: more alike if higher, ↓: if lower
    "cosine": "↑ mean cosine of two tokens; 1: all point the same way",
    "effective_rank": "↓ number of directions that the tokens take; 1: all lie on a line",
    "stable_rank": "↓ energy of the tokens over that of their first direction",
    "centered_stable_rank": "↓ stable rank of the tokens without their mean",
    "rank": "↓ number of singular values above 0.001 of the whole",
    "rank_one_distance": "↓ distance to a matrix of rank one; 0: all lie on a line",
    "mean_share": "↑ share of the mean token in the tokens' second moment; 1: all are equal",
    "norm": "mean length of a token",
    "token_variance": "↓ mean squared distance from the mean token",
    "max_norm_ratio": "length of the longest token over the median length",
    "largest_token_share": "share of one token in the energy of all",
    "largest_channel_share": "share of one channel in the energy of all",
    "effective_rank_without_outliers": "↓ without tokens above 5 times the median length",
    "mean_share_without_outliers": "↑ without tokens above 5 times the median length",
    "dirichlet_energy": "↓ mean over nodes of squared distances to neighbours; 0: all are equal",
    "rayleigh_quotient": "↓ the energy of the normalised Laplacian over that of the nodes",
    "rayleigh_quotient_loops": "↓ the same with self-loops",
    "mad": "↓ mean cosine distance of neighbours; 0: all point the same way",
    "mad_gap": "↓ MAD of nodes 8 or more hops apart, less that of nodes at most 3 apart",
    "group_distance_ratio": "↓ distance between classes over that in a class; 1: classes mix",
    "attention_similarity": "↑ mean cosine of two rows of an attention map; 1: all are equal",
    "attention_entropy": "↑ of a row, divided by log N; 1: uniform",
    "attention_sink": "share of the attention that one token gets",
    "attention_gap": "first over second singular value of an attention map",
    "attention_cosine": "mean cosine of a row and that of the layer before",
    "sample_cosine": "↑ mean cosine of tokens of two samples; 1: the input does not count",
    "rankme": "↓ number of directions that the samples' mean tokens take",
    "gradient_norm": "mean length of a token's gradient",
    "gradient_cosine": "↑ mean cosine of the gradients of two tokens",
    "gradient_effective_rank": "↓ number of directions that the gradients take",
}
COLUMNS = (  # of the table, if the user names none
    *("cosine", "effective_rank", "mean_share", "norm", "max_norm_ratio", "dirichlet_energy"),
    *("mad", "group_distance_ratio", "attention_similarity", "sample_cosine", "gradient_norm"),
)
Pieces = Iterable[Piece]
Metrics = str | Of | Iterable[str | Of] | None


def arrow(metric: str) -> str:
    """Returns ↑ or ↓ for a metric that is higher or lower where tokens are more alike."""
    first = LEGEND.get(metric, "")[:1]
    return first if first in ("↑", "↓") else ""


class OwnMeasure(str):
    """The name of a function of the user, and the function: tokens (b, n, C) -> (b,) or ()."""

    function: Of

    @classmethod
    def of(cls, function: Of) -> "OwnMeasure":
        """Names a function by its ``__name__``, or else by its class."""
        own = cls(getattr(function, "__name__", type(function).__name__))
        own.function = function
        return own

    def __call__(self, t: smoothness.Tokens) -> Tensor:
        """Measures samples; raises InputError unless the function returns one number for each."""
        if t.keep is not None:
            return torch.cat([self._of(x[keep][None]) for x, keep in zip(t.x, t.keep)])
        return self._of(t.x)

    def _of(self, x: Tensor) -> Tensor:
        way = f"give functions of one tensor of tokens (b, N, C), such as {tuple(x.shape)}"
        with explained(f"metrics: {self}", way):
            found: Any = self.function(x.clone())  # which it may change in place
        found = (
            torch.tensor(float(found), dtype=torch.float64) if isinstance(found, Real) else found
        )
        known = isinstance(found, Tensor) and not found.is_complex()
        if known and found.dim() == 0 and len(x) > 1:
            return torch.cat([self._of(y[None]) for y in x])
        if not known or found.shape not in ((), x.shape[:1]):
            got = tuple(found.shape) if known else getattr(found, "dtype", type(found).__name__)
            raise InputError(
                f"metrics: {self} returns {got} for tokens {tuple(x.shape)}; return one number "
                f"for each sample, a tensor {tuple(x.shape[:1])}"
            )
        return smoothness.double(found.detach()).view(-1)


class Pair(str):
    """The name of a pair of tokens, and their places in the outputs of the layers."""

    places: tuple[int, int]

    @classmethod
    def read(cls, pairs: Any) -> "list[Pair]":
        """Reads the pairs that a user names. Raises InputError if they have another form."""
        found = []
        for name, places in pairs.items() if isinstance(pairs, Mapping) else [(pairs, ())]:
            if not isinstance(places, tuple) or [type(i) for i in places] != [int, int]:
                raise InputError(
                    'pairs: expected a name and two places, such as {"cls-dist": (0, 1)}, got '
                    f"{pairs!r}"
                )
            found.append(pair := cls(name))
            pair.places = places
        return found

    def __call__(self, name: str, x: Tensor, keep: Tensor | None = None) -> Tensor:
        """Cosine of the two tokens, prefix or not; NaN where one of them is padding.

        Shapes: x (B, N, C) or (N, C), keep (B, N) -> (B,).
        """
        if not all(-x.shape[-2] <= i < x.shape[-2] for i in self.places):
            raise InputError(
                f"pairs: {self} is {self.places}, but {name} has {x.shape[-2]} tokens; choose "
                "other tokens or layers"
            )
        i, j = (smoothness.double(x[..., place, :]) for place in self.places)
        found = torch.cosine_similarity(i, j, dim=-1).reshape(-1)
        if keep is None:
            return found
        return found.masked_fill(~keep[:, list(self.places)].all(dim=1).to(found.device), torch.nan)


def chosen_measures(given: Metrics, pairs: Any = None) -> tuple[str, ...]:
    """Returns the names of the measures, in the order of ``MEASURES``, then of functions and pairs.

    Args:
        given: see ``diagnose``; None: ``DEFAULT``.
        pairs: see ``diagnose``.

    Raises:
        InputError: a name is unknown, a value is no name or function, two measures have one name,
            or the list is empty.
    """
    of_pairs = Pair.read({} if pairs is None else pairs)
    if twice := [name for name in of_pairs if name in MEASURES]:
        raise InputError(f"pairs: {twice[0]} is a metric; give the pair another name")
    if given is None:
        return (*DEFAULT, *of_pairs)
    single = isinstance(given, str) or not isinstance(given, Iterable)
    listed: tuple[Any, ...] = (given,) if single else tuple(given)  # type: ignore[arg-type]
    names = {getattr(metrics, name, name): name for name in MEASURES}
    wanted = tuple(names.get(one, one) if callable(one) else one for one in listed)
    for one in wanted:
        if not callable(one) and one not in MEASURES:
            way = meant(one, MEASURES) if isinstance(one, str) else "give names or functions"
            raise InputError(f"metrics: unknown {one!r}; {way}")
    if not wanted:
        raise InputError(f"metrics: got an empty list; expected some of {', '.join(MEASURES)}")
    own = [OwnMeasure.of(one) for one in wanted if callable(one)]
    if same := [n for i, n in enumerate(own) if n in (*MEASURES, *of_pairs, *own[:i])]:
        raise InputError(f"metrics: two are named {same[0]}; give the function another __name__")
    return (*(name for name in MEASURES if name in wanted), *own, *of_pairs)


def measure(name: str, pieces: Pieces, measures: Mapping[str, Of]) -> dict[str, list[Tensor]]:
    """Measures the samples of a layer.

    Args:
        name: of the layer, for error messages.
        pieces: the samples, one or more at a time.
        measures: by name; those of edges and labels are skipped if there are none.

    Returns:
        One value per sample for every measure, float64 on the CPU, in parts.

    Raises:
        InputError: tokens are not finite.
    """
    found: dict[str, list[Tensor]] = {m: [] for m in measures}
    for tokens, edges, labels in pieces:
        if not tokens.scale.isfinite().all():
            raise InputError(
                f"{name}: returns values that are not finite, as the first layer that does; look "
                "at the inputs and the weights, and run the model in float32 or bfloat16"
            )
        for measured, function in measures.items():
            values = found[measured]
            if measured in OF_LABELS:
                values += [] if labels is None else _by_label(function, tokens, labels)
            elif measured not in OF_EDGES:
                values.append(function(tokens).cpu())
            elif edges is not None:
                weighted = edges if measured != "mad_gap" else edges[:1]
                values.append(function(tokens, *weighted).cpu())
    return {m: values for m, values in found.items() if values or m not in OF_EDGES | OF_LABELS}


def _by_label(function: Of, tokens: smoothness.Tokens, labels: Tensor) -> list[Tensor]:
    """Measures one sample at a time, since classes differ; padding has no label."""
    labels = labels if tokens.keep is None else labels.masked_fill(~tokens.keep, -1)
    return [function(x, own)[None].cpu() for x, own in zip(tokens.x, labels)]
