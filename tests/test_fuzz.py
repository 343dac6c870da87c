"""Files that others may have written, mutated: read or refused, never run. See scripts/fuzz.py."""

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def test_mutated_files_are_read_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)
    counts = importlib.import_module("fuzz").fuzz("all", 200)
    assert counts.keys() == {"read", "refused"}, counts
    assert counts["refused"] > 100 and counts["read"] > 5
