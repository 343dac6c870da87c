"""A command in this process: a new one takes seconds to start."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "src/oversmoothing/__main__.py"


def here(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs a command of ``oversmoothing``, or a script of the repository; returns its exit code."""
    is_script = words[0].endswith(".py")
    path = ROOT / words[0] if is_script else MAIN
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", words if is_script else ["oversmoothing", *words])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(path), run_name="__main__")
    return left.value.code
