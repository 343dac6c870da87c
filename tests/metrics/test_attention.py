"""Similarity of attention maps against its definition."""

import math

import pytest
import torch
from torch import Tensor

from oversmoothing.metrics.attention import by_block, map_similarity


def softmax_maps(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=dtype).softmax(dim=-1)


def test_it_is_the_mean_cosine_of_the_rows() -> None:
    A = softmax_maps(2, 3, 5, 5)
    for image, measured in zip(A.double(), map_similarity(A)):
        rows = [[head[i] / head[i].norm() for i in range(5)] for head in image]
        pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
        cosines = [sum(float(r[i] @ r[j]) for i, j in pairs) / len(pairs) for r in rows]
        assert measured.item() == pytest.approx(sum(cosines) / 3, abs=1e-12)
    assert measured.dtype == torch.float64


def test_alike_rows_are_1_and_tokens_that_keep_to_themselves_0() -> None:
    alike = softmax_maps(1, 2, 1, 6).expand(1, 2, 6, 6)
    assert map_similarity(alike).item() == pytest.approx(1, abs=1e-6)
    assert map_similarity(torch.eye(6)[None, None]).item() == 0
    uniform = torch.full((1, 1, 4, 4), 0.25)  # what attention tends to as logits vanish
    assert map_similarity(uniform).item() == pytest.approx(1, abs=1e-12)


def test_the_order_of_the_tokens_does_not_matter() -> None:
    A, order = softmax_maps(2, 3, 6, 6), torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = A[..., order, :][..., order]
    assert torch.allclose(map_similarity(shuffled), map_similarity(A), rtol=0, atol=1e-12)


def test_blocks_are_averaged_over_images_not_batches() -> None:
    first, second = softmax_maps(2, 3, 5, 5), softmax_maps(1, 3, 4, 4)
    batches = (iter(maps) for maps in ([first, None], [second, None]))
    similarity, nothing = by_block(batches)
    every = torch.cat([map_similarity(first), map_similarity(second)])
    assert similarity == pytest.approx(every.mean().item(), abs=1e-12) and nothing is None


def test_a_broken_map_is_nan() -> None:
    A = softmax_maps(1, 1, 3, 3)
    A[0, 0, 1, 1] = math.nan
    assert map_similarity(A).isnan().all()
