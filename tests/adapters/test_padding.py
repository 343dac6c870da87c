"""Padding hidden by one mask is padding cut away, sentence length by sentence length."""

from functools import partial

import pytest
import torch

from oversmoothing.adapters.calls import Sentences
from oversmoothing.adapters.sites import Chain
from oversmoothing.aggregators.base import PLAIN, After, Aggregator, Context, Inside
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.contranorm_d import ContraNormD
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.pairnorm import PairNorm

N, C = 12, 16
READERS = [
    partial(Centered, -0.5),
    partial(Centered, -0.5, prefix_in_mean=False),
    *(partial(ContraNorm, dim, dual=dual) for dim in (C, 4) for dual in (False, True)),
    partial(ContraNormD, C),
    *(partial(PairNorm, mode) for mode in ("PN", "PN-SI", "PN-SCS")),
    partial(LayerNorm, C),
]


@pytest.mark.parametrize("make", READERS)
def test_one_mask_is_as_one_call_for_each_length(make, monkeypatch) -> None:
    torch.manual_seed(0)
    aggregator: Aggregator = make().double()
    width = 4 if make.args[:1] == (4,) else C  # above and below the number of tokens
    mask = torch.arange(N) < torch.tensor([5, 9, 3, 9, 12])[:, None]
    mask[1] = mask[1].flip(0)  # padding before the tokens
    x = torch.randn(5, N, width, dtype=torch.float64, requires_grad=True)
    mixed = x[:, None].expand(-1, 3, -1, -1)
    inputs = (mixed, 2 * mixed) if isinstance(aggregator, Inside) else (x,)
    upstream = torch.randn_like(inputs[0])

    def computed() -> tuple[torch.Tensor, torch.Tensor]:
        out = Sentences(mask).apply(Chain([aggregator]), *inputs, context=Context(prefix=1))
        return out, *torch.autograd.grad((out * upstream).sum(), x, retain_graph=True)

    at_once = computed()
    calls = []
    aggregator.register_forward_hook(lambda *_: calls.append(1))
    computed()
    assert len(calls) == 1
    monkeypatch.setattr(aggregator, "reads_mask", False)
    for found, expected in zip(at_once, computed(), strict=True):
        torch.testing.assert_close(found, expected)
    assert len(calls) == 1 + 4  # four lengths


class Maximum(After):
    """Knows nothing of masks, and needs a token."""

    def forward(self, x: torch.Tensor, context: Context = PLAIN) -> torch.Tensor:
        return x - x.amax(dim=-2, keepdim=True)


@pytest.mark.parametrize("make", [*READERS, partial(Maximum)])
def test_a_sentence_of_padding_alone_changes_no_gradient(make) -> None:
    """Its padding keeps its values, and other sentences have the same tokens as without it."""
    torch.manual_seed(0)
    aggregator: Aggregator = make().double()
    x = torch.randn(3, N, 4 if make.args[:1] == (4,) else C, dtype=torch.float64)
    mask = torch.arange(N) < torch.tensor([5, 0, 9])[:, None]
    upstream = torch.randn_like(x)

    def computed(rows: list[int]) -> torch.Tensor:
        some = x[rows].requires_grad_()
        inputs = (some, 2 * some) if isinstance(aggregator, Inside) else (some,)
        out = Sentences(mask[rows]).apply(Chain([aggregator]), *inputs, context=Context(prefix=1))
        return torch.stack([out, *torch.autograd.grad(out, some, upstream[rows])])

    found = computed([0, 1, 2])
    torch.testing.assert_close(found[:, [0, 2]], computed([0, 2]))
    assert torch.equal(found[:, 1], torch.stack([x[1], upstream[1]]))
    with torch.no_grad():  # some aggregators then overwrite their input
        inputs = (x.clone(), 2 * x) if isinstance(aggregator, Inside) else (x.clone(),)
        again = Sentences(mask).apply(Chain([aggregator]), *inputs, context=Context(prefix=1))
    assert torch.equal(again, found[0])
