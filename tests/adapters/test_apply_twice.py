"""A second ``apply``, to other blocks."""

import pytest
import torch
from applied_models import ALL, CASES, ONE_EACH, Case, everything
from small_vit import images

import oversmoothing as osm
from oversmoothing.adapters.blocks import find_blocks
from oversmoothing.errors import InputError


@ALL
@torch.no_grad()
def test_two_calls_are_one_and_remove_undoes_both(case: Case) -> None:
    """Each call reads padding and graphs for itself."""
    model = case.model()
    before, plain = everything(model), case.run(model)
    expected = case.run(osm.apply(model, "centered", gamma=-0.5))
    found = find_blocks(osm.remove(model))
    for blocks in ("last-1", range(len(found) - 1)):
        osm.apply(model, "centered", gamma=-0.5, blocks=blocks)
        assert find_blocks(model) == found
    assert torch.equal(case.run(model), expected)
    osm.remove(model)
    assert torch.equal(case.run(model), plain) and everything(model) == before


@ONE_EACH
@torch.no_grad()
def test_the_order_of_the_calls_does_not_matter(case: Case) -> None:
    calls = [
        {"aggregator": "centered", "gamma": -1, "blocks": [0]},
        {"aggregator": "contranorm", "scale": 0.3, "blocks": [1]},
    ]
    models = [case.model() for _ in range(4)]
    for model, order in zip(models, (calls, calls[::-1], calls[:1], calls[1:])):
        for call in order:
            osm.apply(model, **call)
    both, reverse, first, second = (case.run(model) for model in models)
    assert torch.equal(both, reverse)
    assert not torch.equal(both, first) and not torch.equal(both, second)


@ONE_EACH
def test_a_block_with_a_method_is_refused(case: Case) -> None:
    model = osm.apply(case.model(), "centered", blocks=[1])
    before = everything(model)
    with pytest.raises(InputError, match=r"1 already contains? aggregators; choose other blocks"):
        osm.apply(model, "pairnorm")
    assert everything(model) == before


def test_a_norm_that_blocks_share_is_refused() -> None:
    model = CASES["vit"].model()
    model.blocks[1].norm1 = model.blocks[0].norm1
    osm.apply(model, "contranorm", where="norms", blocks=[0])
    with pytest.raises(InputError, match="blocks.1 already contain"):
        osm.apply(model, "contranorm", where="norms", blocks=[1])


def test_a_pattern_after_blocks() -> None:
    """The pattern names modules without aggregators in blocks that have some elsewhere."""
    model = CASES["vit"].model()
    osm.apply(model, "centered", gamma=-1)
    osm.apply(model, "pairnorm", where="blocks.*.mlp")
    assert model(images(1, 3, 32, 32)).isfinite().all()
    with pytest.raises(InputError, match=r"blocks.0.attn, blocks.1.attn already contain"):
        osm.apply(model, "pairnorm", where="blocks.*.attn")
