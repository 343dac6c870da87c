"""Files that others may have written, mutated: read or refused, never run. See scripts/fuzz.py."""

import runpy
from pathlib import Path

FUZZ = runpy.run_path(str(Path(__file__).parents[1] / "scripts/fuzz.py"))


def test_mutated_files_are_read_or_refused() -> None:
    counts = FUZZ["fuzz"]("all", 200)
    assert counts.keys() == {"read", "refused"}, counts
    assert counts["refused"] > 100 and counts["read"] > 5
