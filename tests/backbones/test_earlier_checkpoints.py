"""Weights that version 0.1 saved, with other names of the aggregators' parameters, load exactly."""

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.external import External
from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.backbones.vit import ViT

LEARNED = partial(ContraNorm, learnable=True)
SMALL_BERT = {"weights": "none", "depth": 2, "dim": 16, "heads": 2, "ffn": 16, "vocabulary": 50}
SMALL_VIT = {"name": "vit_tiny_patch16_224", "weights": "none", "depth": 2, "image_size": 32}
BOTH = ["attention_norm", "attention_sum"]  # after and before one LayerNorm
FIRST_NORM = r"(attention\.output\.LayerNorm)\."

CASES = {  # today's names -> those of version 0.1
    "one position": (
        lambda: BERT([LEARNED], **SMALL_BERT),
        {FIRST_NORM + "before": r"\1.aggregators", FIRST_NORM + "(weight|bias)": r"\1.module.\2"},
    ),
    "two positions": (
        lambda: BERT([LEARNED], position=BOTH, **SMALL_BERT),
        {
            FIRST_NORM + "after": r"\1.module.aggregators",
            FIRST_NORM + "before": r"\1.aggregators",
            FIRST_NORM + "(weight|bias)": r"\1.module.module.\2",
        },
    ),
    "external, BERT": (
        lambda: BERT([External], **SMALL_BERT),
        {r"\.instead\.0\.": ".sited.instead."},
    ),
    "external, ViT": (lambda: ViT([External], **SMALL_VIT), {r"\.instead\.0\.": ".instead."}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_parameter_is_found(name: str) -> None:
    network: Callable[[], nn.Module]
    network, renamed = CASES[name]
    saved = {key: torch.rand_like(value) for key, value in network().state_dict().items()}
    earlier = dict(saved)
    for today, then in renamed.items():
        earlier = {re.sub(today, then, key): value for key, value in earlier.items()}
    assert earlier.keys() != saved.keys() and len(earlier) == len(saved)
    loaded = network()
    loaded.load_state_dict(earlier)
    state = loaded.state_dict()
    assert all(torch.equal(state[key], value) for key, value in saved.items())
