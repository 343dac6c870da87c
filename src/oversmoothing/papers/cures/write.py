"""Writes the study's files."""

from collections.abc import Sequence
from pathlib import Path

from oversmoothing.papers.cures.records import Record
from oversmoothing.papers.cures.study import Study


def write_all(study: Study, records: Sequence[Record], results: Path, pdf: bool) -> list[Path]:
    return []
