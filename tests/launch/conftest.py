"""Commands in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Train = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Runs train.py in an empty folder; exit code, lines of stdout, lines of stderr."""

    def run(*words: str, path: str = "") -> tuple[int, list[str], list[str]]:
        paths = [path, os.environ.get("PYTHONPATH", "")]
        done = subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()

    return run
