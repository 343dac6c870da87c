"""The committed notebook runs from its first cell to its last."""

import json
import re
from pathlib import Path

import pytest
import torch

import oversmoothing as osm

NOTEBOOK = Path(__file__).parents[1] / "examples/tour.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def test_every_cell_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    for package in ("torch_geometric", "matplotlib"):
        pytest.importorskip(package)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    assert sum(cell.count("epochs=80") for cell in CODE) == 1
    for number, cell in enumerate(cell.replace("epochs=80", "epochs=15") for cell in CODE):
        exec(compile(cell, f"tour.ipynb, code cell {number}", "exec"), names)
    out = capsys.readouterr().out
    assert "The effective rank falls" in out and "skipped: " in out  # no hub here
    shares = dict(re.findall(r"^(.+): ([\d.]+) %", out, re.M))
    assert float(shares["no method"]) < 1.1 * float(shares["chance"])
    for method in ("LayerNorm and centered, γ = −1", "PairNorm", "initial residual"):
        assert float(shares[method]) > 2 * float(shares["chance"])


def test_the_last_cell_measures_a_language_model(capsys: pytest.CaptureFixture) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(vocab_size=50, **sizes, **heads)
    ids = torch.arange(12)[None]
    batch = transformers.BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    names = {"model": transformers.LlamaModel(config), "tokenizer": lambda *_, **__: batch}
    exec(CODE[-1], names | {"osm": osm, "name": "tiny", "text": "", "curves": len})
    assert "effective rank" in capsys.readouterr().out


def test_it_is_committed_with_what_it_showed() -> None:
    outputs = [output for cell in CELLS for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output["output_type"] == "error"]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    assert NOTEBOOK.stat().st_size < 400_000
    assert all(cell["execution_count"] for cell in CELLS if cell["cell_type"] == "code")
