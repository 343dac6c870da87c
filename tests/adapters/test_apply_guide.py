"""The code of docs/guides/apply.md and faq.md runs from top to bottom."""

import re
from pathlib import Path

import pytest
import torch
from guide import ROOT


@pytest.mark.parametrize("page, count", [("apply", 13), ("faq", 6)])
def test_the_code_of_a_guide_runs(
    page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # it saves a file
    text = (ROOT / f"docs/guides/{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == count
    torch.manual_seed(0)
    names: dict = {}
    for block in blocks:
        exec(compile(block, f"docs/guides/{page}.md", "exec"), names)
    if page == "apply":
        assert not torch.equal(names["changed"], names["plain"])
