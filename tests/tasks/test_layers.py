"""Means by block do not depend on how samples are put into batches."""

import pytest
import torch
from tokens import random_tokens as draw
from torch import Tensor

from oversmoothing.lab.tasks.layers import OF_BLOCKS, measured, similarities
from oversmoothing.metrics.attention import attention_similarity


def softmax_maps(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=dtype).softmax(dim=-1)


def test_means_by_block_do_not_depend_on_the_batches() -> None:
    blocks = [draw(5, 9, 4, seed=i) for i in range(3)]
    whole = measured([blocks])
    parts = measured([x[part] for x in blocks] for part in (slice(2), slice(2, None)))
    for name, measure in ((measure.__name__, measure) for measure in OF_BLOCKS):
        expected = [measure(x).mean().item() for x in blocks]
        assert whole[name] == pytest.approx(expected) and parts[name] == pytest.approx(expected)


def test_blocks_are_averaged_over_images_not_batches() -> None:
    first, second = softmax_maps(2, 3, 5, 5), softmax_maps(1, 3, 4, 4)
    batches = (iter(maps) for maps in ([first, None], [second, None]))
    similarity, nothing = similarities(batches)
    every = torch.cat([attention_similarity(first), attention_similarity(second)])
    assert similarity == pytest.approx(every.mean().item(), abs=1e-12) and nothing is None
