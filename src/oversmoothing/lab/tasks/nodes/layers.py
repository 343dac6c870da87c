"""Smoothness of the node features after every layer of a graph network."""

from torch import Tensor

from oversmoothing.metrics import smoothness


def of_layers(hidden: list[Tensor], edges: Tensor) -> list[dict[str, list[float]]]:
    """Measures smoothness metrics by layer.

    Args:
        hidden: outputs of the layers, each (S, N, C).
        edges: (2, E) for the metrics over neighbours.

    Returns:
        Per seed, metric -> one value per layer.
    """
    by_layer = [_measure(h, edges) for h in hidden]
    seeds = range(hidden[0].shape[0])
    return [{m: [layer[m][s] for layer in by_layer] for m in by_layer[0]} for s in seeds]


def _measure(h: Tensor, edges: Tensor) -> dict[str, list[float]]:
    """Measures a layer: metric -> one value per seed."""
    measured = {
        "effective_rank": smoothness.effective_rank(h),
        "mean_cosine": smoothness.mean_cosine(h),
        "token_variance": smoothness.token_variance(h),
        "dirichlet_energy": smoothness.dirichlet_energy(h, edges),
        "mad": smoothness.mean_average_distance(h, edges),
    }
    return {name: value.tolist() for name, value in measured.items()}
