"""The measures of a layer; each gives one number for every sample."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch import Tensor

from oversmoothing.errors import InputError, meant
from oversmoothing.metrics import smoothness

ATTENTION = "attention_similarity"
Of = Callable[[Tensor], Tensor]
OF_TOKENS: dict[str, Of] = {
    "cosine": smoothness.mean_cosine,
    "effective_rank": smoothness.effective_rank,
    "mean_share": smoothness.mean_share,
    "norm": smoothness.mean_norm,
}
OF_EDGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "dirichlet_energy": smoothness.dirichlet_energy,
    "mad": smoothness.mean_average_distance,
}
MEASURES = (*OF_TOKENS, *OF_EDGES, ATTENTION)


Metrics = str | Of | Iterable[str | Of] | None


class OwnMeasure(str):
    """The name of a function of the user, and the function: tokens (b, n, C) -> (b,)."""

    function: Of

    @classmethod
    def of(cls, function: Of) -> "OwnMeasure":
        """Names a function by its ``__name__``, or else by its class."""
        own = cls(getattr(function, "__name__", type(function).__name__))
        own.function = function
        return own

    def __call__(self, x: Tensor) -> Tensor:
        """Measures samples of one size. Raises InputError unless there is one number for each."""
        found: Any = self.function(x)
        if not isinstance(found, Tensor) or found.shape != x.shape[:1]:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(
                f"metrics: {self} returns {got} for tokens {tuple(x.shape)}; return one number "
                f"for each sample, a tensor {tuple(x.shape[:1])}"
            )
        return found.double()


def chosen_measures(metrics: Metrics) -> tuple[str, ...]:
    """Returns the names of the measures; None chooses all.

    Raises:
        InputError: an unknown name, something else, or two measures of one name.
    """
    if metrics is None:
        return MEASURES
    single = isinstance(metrics, str) or not isinstance(metrics, Iterable)
    wanted: tuple[Any, ...] = (metrics,) if single else tuple(metrics)  # type: ignore[arg-type]
    for one in wanted:
        if not callable(one) and one not in MEASURES:
            way = meant(one, MEASURES) if isinstance(one, str) else "give names or functions"
            raise InputError(f"metrics: unknown {one!r}; {way}")
    if not wanted:
        raise InputError(f"metrics: got an empty list; expected some of {', '.join(MEASURES)}")
    own = [OwnMeasure.of(one) for one in wanted if callable(one)]
    if double := [n for i, n in enumerate(own) if n in (*MEASURES, *own[:i])]:
        raise InputError(f"metrics: two are named {double[0]}; give the function another __name__")
    return (*(name for name in MEASURES if name in wanted), *own)


def measure(
    name: str, pieces: Iterable[tuple[Tensor, Tensor | None]], measures: Collection[str]
) -> dict[str, Tensor]:
    """Measures the samples of a layer.

    Args:
        name: of the layer, for error messages.
        pieces: tokens (b, n, C) of one or more samples, and the edges of a graph or None.
        measures: names; those that need edges are skipped if there are none.

    Returns:
        One value per sample for every measure, float64 on the CPU. Samples of one token are left
        out.

    Raises:
        InputError: tokens are not finite.
    """
    own = {str(m): m for m in measures if isinstance(m, OwnMeasure)}
    wanted = {m: of_tokens for m, of_tokens in (OF_TOKENS | own).items() if m in measures}
    found: dict[str, list[Tensor]] = {m: [] for m in wanted}
    for x, edges in ((x, edges) for x, edges in pieces if x.shape[1] > 1):
        if not x.isfinite().all():
            raise InputError(
                f"{name}: returns values that are not finite, as the first layer that does; look "
                "at the inputs and the weights, and run the model in float32 or bfloat16"
            )
        for measured, of_tokens in wanted.items():
            found[measured].append(of_tokens(x))
        for measured, of_edges in OF_EDGES.items():
            if measured in measures and edges is not None:
                found.setdefault(measured, []).append(of_edges(x, edges))
    none = [torch.empty(0, dtype=torch.float64)]
    return {measured: torch.cat(values or none).cpu() for measured, values in found.items()}
