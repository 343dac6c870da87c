"""Commands in an empty folder: in this process, or in a new one that finds a user's modules."""

import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Train = Callable[..., tuple[int, list[str], list[str]]]
BESIDE = re.compile(r"    |\S+: epoch \d+ of \d+: ")  # lines of the setting and of progress


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> Train:
    """Runs train.py in an empty folder; exit code, lines of stdout, lines of stderr.

    Lines of progress, and those below a summary, are left out.
    """

    def run(*words: str, path: str = "") -> tuple[int, list[str], list[str]]:
        if path:
            return _elsewhere(tmp_path, path, words)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["train.py", *words])
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)
        signals = {number: signal.getsignal(number) for number in numbers}
        try:
            with pytest.raises(SystemExit) as left:
                runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        finally:
            for number, before in signals.items():
                signal.signal(number, before)
        out, err = capfd.readouterr()
        return left.value.code or 0, _lines(out), _lines(err)

    return run


def _elsewhere(folder: Path, path: str, words: tuple) -> tuple[int, list[str], list[str]]:
    """The command in a new process, which has another search path and may load plugins of Hydra."""
    paths = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, _lines(done.stdout), _lines(done.stderr)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not BESIDE.match(line)]
