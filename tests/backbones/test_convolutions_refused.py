"""Refusals of networks of torch-geometric's convolutions, and their guide."""

import re
import sys
from pathlib import Path

import pytest
from small_pyg import CONVS, networks

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.launch.command import command, configs

ROOT = Path(__file__).parents[2]


def test_the_python_of_the_guide_runs(capsys: pytest.CaptureFixture) -> None:
    page = (ROOT / "docs/guides/graphs.md").read_text(encoding="utf-8")
    code, _ = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    exec(compile(code, "docs/guides/graphs.md", "exec"), {})
    assert "layers.3" in capsys.readouterr().out


def test_the_guide_lists_every_convolution() -> None:
    page = (ROOT / "docs/guides/graphs.md").read_text(encoding="utf-8")
    listed = page.partition("`backbone.conv` is one of ")[2].partition(". ")[0]
    assert sorted(re.findall(r"\w+", listed)) == sorted(CONVS)


def test_a_command_is_checked_before_any_work(tmp_path: Path) -> None:
    words = ["backbone=pyg", "logger=none", f"paths.outputs={tmp_path}"]
    with pytest.raises(Problems) as caught:
        command([*words, "backbone.conv=GATConv", "backbone.options.headz=8"])
    assert caught.value.lines == ["backbone.options.headz: no such key; did you mean 'heads'?"]
    for plus in ("", "+"):  # Hydra's sign for a new key can be left out
        [config] = configs([*words, "backbone.conv=GATConv", f"{plus}backbone.options.heads=8"])
        assert config.backbone.options == {"heads": 8}


def test_without_torch_geometric_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    with pytest.raises(InputError, match="pyg needs torch-geometric .*pip install torch-geo"):
        networks()
