"""Sentences, or pairs of them, with a label each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

OnError = Literal["stop", "skip"]


@dataclass(frozen=True)
class Text:
    """A sentence, or two, and its class from 0 or its score."""

    first: str
    second: str | None
    label: float


@dataclass(frozen=True, eq=False)
class TextSet:
    """Texts by their ids, and the parts that they are in.

    Args:
        name: of the data set.
        num_classes: K; 0: the label is a score.
        metrics: names of those that predictions are measured by.
        texts: id -> text.
        train: ids.
        parts: ids of each part to evaluate on; ``val`` is one.
        vocabulary: of WordPiece, one token a line; None: there is none.
        checksum: short hash of texts, labels and vocabulary.
        on_error: of lines that cannot be read.
    """

    name: str
    num_classes: int
    metrics: tuple[str, ...]
    texts: Mapping[str, Text]
    train: tuple[str, ...]
    parts: Mapping[str, tuple[str, ...]]
    vocabulary: Path | None
    checksum: str
    on_error: OnError = "stop"

    @property
    def val(self) -> tuple[str, ...]:
        """Ids of the part that decides."""
        return self.parts["val"]
