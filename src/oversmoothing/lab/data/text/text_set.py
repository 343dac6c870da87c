"""Labelled sentences and sentence pairs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

OnError = Literal["stop", "skip"]


@dataclass(frozen=True)
class Text:
    """One or two sentences with a class (0, 1, …) or a score."""

    first: str
    second: str | None
    label: float


@dataclass(frozen=True, eq=False)
class TextSet:
    """A data set of texts, split into parts.

    Args:
        name: of the data set.
        num_classes: K; 0: labels are scores.
        metrics: names of the metrics for predictions.
        texts: id -> text.
        train: ids of the training texts.
        parts: ids of the texts of each evaluation part, among them ``val``.
        vocabulary: file with one WordPiece token per line; None: the hub's tokenizer is used.
        checksum: short hash of texts, labels and vocabulary.
        on_error: what to do at broken lines.
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
        """Ids of the validation texts."""
        return self.parts["val"]
