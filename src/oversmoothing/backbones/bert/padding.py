"""Aggregators on sentences of different lengths."""

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.aggregators.base import Aggregator, Context


class Padding:
    """Where the sentences of the batch at hand end; all places of a network share one.

    ContraNorm's code for language has no mask: padding takes part in what its layer does, so that
    a sentence's result depends on its company in the batch. Masked, an aggregator, whichever it
    is, sees sentences of one length at a time, each without its padding.

    Args:
        masked: keep padding from aggregators.
        prefix: leading tokens that are no words (CLS).
    """

    def __init__(self, masked: bool, prefix: int) -> None:
        self.masked, self.context = masked, Context(prefix=prefix)
        self.groups: list[tuple[Tensor, int]] = []
        self.back: Tensor | None = None

    def begin(self, mask: Tensor) -> None:
        """Takes the mask of a new batch, (B, N), true for tokens before the padding."""
        self.groups = []
        if self.masked and not mask.all():
            lengths = mask.sum(dim=1)
            order = lengths.argsort(stable=True)
            found, counts = lengths.unique(return_counts=True)
            self.groups = list(zip(order.split(counts.tolist()), found.tolist()))
            self.back = order.argsort()

    def apply(self, aggregator: Aggregator, *tensors: Tensor) -> Tensor:
        """What an aggregator makes of tensors (B, …, N, C); masked, padding comes out as 0."""
        if not self.groups:
            return aggregator(*tensors, self.context)
        N, pieces = tensors[0].shape[-2], []
        for rows, length in self.groups:
            piece = aggregator(*(t[rows][..., :length, :] for t in tensors), self.context)
            pieces.append(F.pad(piece, (0, 0, 0, N - length)))
        return torch.cat(pieces)[self.back]
