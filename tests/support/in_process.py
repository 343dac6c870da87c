"""A script in this process: a new one takes seconds to start."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def here(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs a script of the folder scripts with its arguments; returns its exit code."""
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(ROOT / "scripts" / words[0]), run_name="__main__")
    return left.value.code
