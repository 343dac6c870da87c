"""Packed sequences: several of them follow each other in a row, and each one is a sample."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from oversmoothing.diagnosis.calls import Call
from oversmoothing.diagnosis.samples import Piece, Sequences
from oversmoothing.errors import InputError
from oversmoothing.metrics.smoothness import Tokens

BOUNDS = ("cu_seq_lens_q", "cu_seqlens")  # arguments with the bounds of sequences, 0 to N


@dataclass(frozen=True, eq=False)
class Packed(Sequences):
    """Rows (B, N, C) of several sequences.

    Args:
        ids: the sequence of every token, (B, N); negative: padding.
    """

    ids: Tensor = torch.empty(0, 0)

    def rows(self) -> list[tuple[int, Tensor]]:
        """Returns the row of every sequence, and the places of its tokens in it."""
        found = [(b, (ids == one).nonzero()[:, 0]) for b, ids in enumerate(self.ids)
                 for one in ids.unique() if one >= 0]  # fmt: skip
        return found

    def split(self, x: Tensor) -> Iterator[Piece]:
        """Yields one sequence of two tokens or more at a time. Shapes: (B, N, C) -> (1, n, C)."""
        for b, places in self.rows():
            if len(places) > 1:
                labels = None if self.labels is None else self.labels[b, places][None]
                yield Piece(Tokens(x[b, places][None]), None, labels)

    def sizes(self, x: Tensor) -> list[int]:
        """Returns the number of tokens of every sequence."""
        return [len(places) for _, places in self.rows()]


def ids_of(segments: Tensor | None, call: Call, B: int, N: int) -> Tensor | None:
    """Returns the sequence of every token of a layer, (B, N); None if rows are not packed.

    Args:
        segments: given by the user, sequences (B, N) or (N,), or their bounds (S + 1,); None: the
            bounds that the model gets, or its position ids, which start anew in each sequence.

    Raises:
        InputError: ``segments`` has another shape.
    """
    if segments is not None:
        if (found := _ids(segments, B, N)) is None:
            raise InputError(
                f"segments: expected the sequence of every token, ({B}, {N}) or ({N},), or bounds "
                f"from 0 to {B * N}, got {segments.dtype} {tuple(segments.shape)}"
            )
        return found
    if bounds := [given for name in BOUNDS if (given := call.tensor(name)) is not None]:
        return _ids(bounds[0], B, N)
    places = call.tensor("position_ids")
    if places is None or places.dim() != 2 or places.shape[1] != N:
        return None
    starts = places[:, 1:] <= places[:, :-1]
    return torch.nn.functional.pad(starts.cumsum(dim=1), (1, 0)).expand(B, N)


def _ids(segments: Tensor, B: int, N: int) -> Tensor | None:
    if segments.is_floating_point():
        return None
    if segments.dim() == 1 and len(segments) != N and segments[[0, -1]].tolist() == [0, B * N]:
        lengths = segments.long().diff()
        ids = torch.arange(len(lengths), device=lengths.device)
        return ids.repeat_interleave(lengths).view(B, N)
    return segments.expand(B, N) if segments.shape in ((N,), (1, N), (B, N)) else None
