"""The code of docs/guides/apply.md runs from top to bottom."""

import re
from pathlib import Path

import pytest
import torch
from guide import ROOT


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it saves a file
    page = (ROOT / "docs/guides/apply.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(blocks) == 13
    torch.manual_seed(0)
    names: dict = {}
    for block in blocks:
        exec(compile(block, "docs/guides/apply.md", "exec"), names)
    assert not torch.equal(names["changed"], names["plain"])
