"""A small BERT or ALBERT, and sentences for it."""

import torch
from torch import Tensor, nn

from oversmoothing.lab.backbones.bert import BERT

SMALL = {"weights": "none", "depth": 2, "dim": 16, "heads": 2, "ffn": 32, "vocabulary": 50}


def made(kind: type, *aggregators, **options) -> BERT:
    torch.manual_seed(0)
    network = kind(list(aggregators), **SMALL | {"dropout": 0.0} | options).double().eval()
    for parameter in network.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5, std=0.5)  # what starts at 0 or 1 shows no mistake
    return network


def batch(*lengths: int, pad: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Sentences whose first words do not depend on how many there are."""
    N = max(lengths) + pad
    tokens = torch.randint(5, 50, (8, 32), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(N) < torch.tensor(lengths)[:, None]
    tokens = tokens[: len(lengths), :N].masked_fill(~mask, 0)
    return tokens, mask, (torch.arange(N) > 3).long().expand_as(tokens) * mask
