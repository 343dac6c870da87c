"""The code of docs/guides/apply.md and faq.md runs from top to bottom."""

import re
from pathlib import Path

import pytest
import torch
from guide import ROOT

from oversmoothing.adapters.names import known
from oversmoothing.adapters.sites import SITES


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


def test_the_guide_names_every_method_that_can_be_causal() -> None:
    text = (ROOT / "docs/guides/apply.md").read_text(encoding="utf-8")
    [named] = re.findall(r"^Only (.*?) and the skip connections can be causal", text, re.M | re.S)
    causal = {name for name, kind in known().items() if kind.can_be_causal and kind.site in SITES}
    skips = {name for name in causal if known()[name].reads_inputs}
    assert set(re.findall(r"`(\w+)`", named)) == causal - skips - {"none"}
