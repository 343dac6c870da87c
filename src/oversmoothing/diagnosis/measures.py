"""The measures of a layer; each gives one number for every sample."""

from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor

from oversmoothing.errors import InputError, meant
from oversmoothing.metrics import smoothness

ATTENTION = "attention_similarity"
OF_TOKENS: dict[str, Callable[[Tensor], Tensor]] = {
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


def chosen_measures(metrics: Iterable[str] | None) -> tuple[str, ...]:
    """Returns the names of the measures; None chooses all.

    Raises:
        InputError: an unknown name.
    """
    if metrics is None:
        return MEASURES
    wanted = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    for name in wanted:
        if name not in MEASURES:
            raise InputError(f"metrics: unknown {name!r}; {meant(name, MEASURES)}")
    if not wanted:
        raise InputError(f"metrics: got an empty list; expected some of {', '.join(MEASURES)}")
    return tuple(name for name in MEASURES if name in wanted)


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
    found: dict[str, list[Tensor]] = {m: [] for m in OF_TOKENS if m in measures}
    for x, edges in ((x, edges) for x, edges in pieces if x.shape[1] > 1):
        if not x.isfinite().all():
            raise InputError(
                f"{name}: returns values that are not finite, as the first layer that does; look "
                "at the inputs and the weights, and run the model in float32 or bfloat16"
            )
        for measured, of_tokens in OF_TOKENS.items():
            if measured in measures:
                found[measured].append(of_tokens(x))
        for measured, of_edges in OF_EDGES.items():
            if measured in measures and edges is not None:
                found.setdefault(measured, []).append(of_edges(x, edges))
    none = [torch.empty(0, dtype=torch.float64)]
    return {measured: torch.cat(values or none).cpu() for measured, values in found.items()}
