"""Refusals of networks of torch-geometric's convolutions, and their guide."""

import re
import sys
from pathlib import Path

import pytest
import torch
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


BAD = {
    "GCNCov": ({}, "torch_geometric.nn has no 'GCNCov'; did you mean 'GCNConv'?"),
    "Linear": ({}, "Linear is not a convolution"),
    "NNConv": ({}, "NNConv needs edge_attr"),
    "RGCNConv": ({}, "RGCNConv needs edge_type"),
    "GMMConv": ({}, "GMMConv needs edge_attr"),
    "PointNetConv": ({}, "PointNetConv needs pos"),
    "HypergraphConv": ({}, "HypergraphConv needs hyperedge_index"),
    "HGTConv": ({}, "HGTConv needs edge_index_dict and x_dict"),
    "DynamicEdgeConv": ({}, "DynamicEdgeConv takes no edges"),
    "DNAConv": ({}, "DNAConv does not run on node features and edges .*num_layers"),
    "MeshCNNConv": ({}, "MeshCNNConv does not run on node features and edges"),
    "ChebConv": ({"options": {}}, "options.K: ChebConv needs it; add +backbone.options.K=…"),
    "GATConv": (
        {"options": {"heads": 3}},
        "options.heads: expected a divisor of backbone.hidden",
    ),
    "GATv2Conv": ({"options": {"headz": 3}}, "options.headz: no such key; did you mean 'heads'?"),
    "SGConv": ({"adjacency": "row"}, "adjacency: SGConv takes no edge weights or always norm"),
    "SSGConv": ({"options": {"alpha": 0.1, "cached": True}}, "options.cached: .*; leave it out"),
    "TAGConv": ({"options": {"K": "three"}}, "options.K: expected a whole number, got 'three'"),
    "GraphConv": ({"options": {"out_channels": 3}}, "options.out_channels: the network sets it"),
    "GCN2Conv": ({"skip": "initial"}, "skip: GCN2Conv already takes the initial features"),
    "PNAConv": ({"options": {"aggregators": ["men"], "scalers": []}}, "PNAConv does not run on"),
    "EGConv": (
        {"options": {}},
        "EGConv does not run on .*must be divisible by the number",
    ),
    "APPNP": ({"alpha": 1.5}, "alpha: expected a number from 0 to 1"),
    "GINConv": ({"interval": 2}, "interval: only backbone.skip=residual reads it"),
    "TransformerConv": (
        {"skip": "residual", "lam": 1.0},
        "lam: only backbone.skip=initial reads it",
    ),
    "SAGEConv": ({"weights": torch.ones(1)}, "edges of this graph have weights, and SAGEConv"),
}


@pytest.mark.parametrize("conv", BAD)
def test_bad_input_is_one_line(conv: str) -> None:
    options, said = BAD[conv]
    with pytest.raises(InputError, match=rf"^backbone\..*{said}".replace("+", r"\+")) as caught:
        networks(conv, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [{"depth": 0}, {"hidden": 0}, {"interval": 0}, {"dropout": 1.0}, {"drop_edge": 1.0}]
    + [{"skip": "x"}, {"jumping": "x"}, {"adjacency": "x"}, {"lam": -1.0}, {"alpha": -1.0}],
)
def test_bad_settings_are_named(option: dict) -> None:
    with pytest.raises(InputError, match=rf"backbone\.{next(iter(option))}: expected"):
        networks(**option)


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
