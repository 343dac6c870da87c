"""A script in this process: a new one takes seconds to start."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def here(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs a script with its arguments; returns its exit code. Its folder is scripts, or named."""
    path = ROOT / ("" if "/" in words[0] else "scripts") / words[0]
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    return left.value.code
