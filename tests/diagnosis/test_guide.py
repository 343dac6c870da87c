"""The Python of docs/guides/diagnose.md runs, from the first block to the last."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs/guides/diagnose.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert (tmp_path / "layers.csv").exists() and (tmp_path / "layers.png").exists()
