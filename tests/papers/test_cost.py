"""Counts of multiply-adds, parameters and kept activations against arithmetic by hand."""

from functools import partial

import pytest

from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.lab.backbones.cnn import CNN
from oversmoothing.lab.papers.hemnet_cost import Cost, best_fit, cost_by_part
from oversmoothing.lab.tasks.segmentation_network import Segmenter

DIM, HIDDEN, LABELS, SIDE, K, T = 16, 12, 5, 65, 4, 3
N = (SIDE // 8 + 1) ** 2  # pixels at stride 8
HEM = partial(EM, num_bases=K, iterations=T, step_size=0.5, l2=False, gradients=True)


def make(aggregator=NoAggregator) -> Segmenter:
    options = {"name": "resnet18", "weights": "none", "multi_grid": None, "dim": DIM}
    return Segmenter(CNN([aggregator], **options), LABELS, HIDDEN)


@pytest.fixture(scope="module")
def hem() -> dict[str, Cost]:
    return cost_by_part(partial(make, HEM), SIDE)


def test_multiply_adds_by_hand(hem: dict[str, Cost]) -> None:
    assert hem["reduction"].macs == N * 512 * DIM * 9
    products = (2 * T + 1) * K * DIM  # of E-steps, N-steps and the reconstruction
    assert hem["unit"].macs == N * (2 * DIM * DIM + products)
    assert hem["head"].macs == N * (9 * DIM * HIDDEN + HIDDEN * LABELS)


def test_parameters_are_those_of_the_network_and_the_bases(hem: dict[str, Cost]) -> None:
    network = make(HEM)
    total = sum(p.numel() for p in network.parameters()) + K * DIM
    assert sum(cost.parameters for cost in hem.values()) == total
    assert hem["unit"].parameters == DIM * DIM + DIM + DIM * DIM + 2 * DIM + K * DIM


def test_saved_activations_by_hand(hem: dict[str, Cost]) -> None:
    """Of the reduction: input of the norm, its statistics, output of the ReLU; the input of the
    convolution belongs to the backbone, which keeps it too."""
    assert hem["reduction"].saved == 4 * (2 * N * DIM + 2 * DIM)


def test_without_gradient_less_is_kept(hem: dict[str, Cost]) -> None:
    em = cost_by_part(partial(make, partial(EM, num_bases=K, iterations=T)), SIDE)
    none = cost_by_part(make, SIDE)
    assert "unit" not in none
    assert em["unit"].macs == hem["unit"].macs
    assert em["unit"].saved < hem["unit"].saved
    same = ("backbone", "reduction", "head")
    assert all(em[part] == hem[part] == none[part] for part in same)


def test_the_closest_count_is_found() -> None:
    measured = {"a": [1_000_000, 3_000_000], "b": [2_000_000, 5_000_000]}
    fit = best_fit((1.9, 4.8), measured, {"M": 1e6, "Mi": 2**20})
    assert fit["convention"] == "b, Mi"
    assert fit["error"] == pytest.approx(abs(5e6 / 2**20 / 4.8 - 1))
