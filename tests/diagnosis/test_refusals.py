"""What cannot be measured is refused in one line that names the way out."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.data as pyg_data
import torch_geometric.nn as pyg
from torch import Tensor, nn

import oversmoothing as osm

X, NODES = torch.randn(2, 5, 8), torch.randn(4, 3)
EDGES = torch.tensor([[0, 1], [1, 0]])


class Blocks(nn.Module):
    """A model of blocks that applies a function to their outputs."""

    def __init__(self, change: Callable[[Tensor], Any] = lambda x: x) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(change) for _ in range(2)])
        self.unused = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            block(x)
        return x


class Block(nn.Module):
    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.change = nn.Linear(8, 8), change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.linear(x))


class Heads(nn.Module):
    """Blocks with torch's attention whose first axis could be tokens or samples."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Head(), Head()])

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[1](self.blocks[0](x))


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


def gcn() -> nn.Module:
    return pyg.GCN(3, 8, 2)


def jit() -> nn.Module:
    return torch.jit.trace(nn.Linear(8, 8), X)


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple, dict[str, Any], str]] = {
    "no blocks": (lambda: nn.Linear(8, 8), (X,), {}, "layers: found no repeated blocks in Linear"),
    "no tokens": (lambda: Blocks(lambda x: "text"), (X,), {}, "returns no tokens .*, but str"),
    "flat": (lambda: Blocks(lambda x: x[:, 0]), (X,), {}, r"but \(2, 8\); choose other layers"),
    "integers": (lambda: Blocks(lambda x: x.long()), (X,), {}, "returns no tokens"),
    "maps": (lambda: Blocks(lambda x: x[..., None]), (X,), {}, "layout: .* BCHW or BHWC; give lay"),
    "swapped": (lambda: Blocks(lambda x: x.transpose(0, 1)), (X,), {}, "layout: .* NBC or BNC"),
    "heads": (Heads, (X,), {}, "layout: .* NBC or BNC"),
    "layout": (Blocks, (X,), {"layout": "NCB"}, "layout: expected one of BNC, NBC"),
    "one token": (lambda: Blocks(lambda x: x[:, :1]), (X,), {}, "blocks.0: every sample has fewer"),
    "nan": (lambda: Blocks(lambda x: x / 0), (X,), {}, "blocks.0: returns values that are not"),
    "jit": (jit, (X,), {}, "modules of torch.jit take no hooks; give the model"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(8)), (X,), {}, "lazy modules"),
    "jit inside": (
        lambda: nn.Sequential(jit(), jit()), (X,), {}, r"layers: 0 is a module of torch\.jit"),
    "glob": (Blocks, (X,), {"layers": "block.*"}, "'block.*' matches no module; did you mean"),
    "stranger": (Blocks, (X,), {"layers": nn.Linear(1, 1)}, "a Linear that is not a module of the"),
    "no layers": (Blocks, (X,), {"layers": []}, "layers: got an empty list"),
    "not called": (Blocks, (X,), {"layers": ["blocks.0", "unused"]}, "unused is not called by the"),
    "no model": (lambda: "model", (X,), {}, "model: expected a torch.nn.Module, got str"),
    "no inputs": (Blocks, (), {}, "inputs: got none"),
    "no batch": (Blocks, (), {"batches": []}, "batches: got no batch"),
    "both": (Blocks, (X,), {"batches": [X]}, "batches: expected instead of inputs"),
    "labels": (Blocks, (), {"batches": [(X, torch.tensor([0, 1]))]}, "labels, give batches=.x for"),
    "a tensor": (Blocks, (), {"batches": X}, "batches: expected an iterable of inputs, got Tensor"),
    "no samples": (Blocks, (X[:0],), {}, "the batch is empty"),
    "mask": (Blocks, (X,), {"mask": torch.ones(2, 4).bool()}, r"mask: .*\(2, 5\).*got \(2, 4\)"),
    "float mask": (Blocks, (X,), {"mask": torch.full((2, 5), 0.5)}, "mask: expected booleans or 0"),
    "prefix": (Blocks, (X,), {"prefix": 5}, "prefix: expected 0 to 4.*got 5"),
    "metric": (Blocks, (X,), {"metrics": ["cosin"]}, "unknown 'cosin'; did you mean 'cosine'"),
    "no edges": (Blocks, (X,), {"metrics": ["mad"]}, "metrics: cannot measure mad: edges"),
    "reference": (Blocks, (X,), {"reference": "zero"}, "reference: expected 'random'"),
    "another": (Blocks, (X,), {"reference": nn.Linear(8, 8)}, "reference: has no layer blocks.0"),
    "edges shape": (gcn, (NODES, EDGES), {"edges": EDGES.T[:1]}, "edges: expected integers"),
    "edges range": (gcn, (NODES, EDGES), {"edges": EDGES + 3}, "nodes from 0 to 3, got 3 to 4"),
    "mask of a graph": (gcn, (NODES, EDGES), {"mask": torch.ones(4).bool()}, "mask: nodes of a gr"),
    "prefix of a graph": (gcn, (NODES, EDGES), {"prefix": 1}, "prefix: nodes of a graph"),
    "batch": (gcn, (NODES, EDGES), {"batch": torch.zeros(3).long()}, "batch: expected the graph"),
    "joined": (gcn, (NODES, EDGES), {"batch": torch.tensor([0, 1, 1, 1])}, "edges: some join two"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(case: str) -> None:
    build, inputs, options, message = REFUSED[case]
    model = build()
    with pytest.raises(osm.InputError, match=message) as refused:
        osm.diagnose(model, *inputs, **options)
    assert "\n" not in str(refused.value)
    if isinstance(model, nn.Module):
        assert model.training and not any(m._forward_hooks for m in model.modules())


def test_blocks_whose_parts_are_called_directly() -> None:
    class Direct(Blocks):
        def forward(self, x: Tensor) -> Tensor:
            return self.blocks[1].linear(self.blocks[0].linear(x))

    with pytest.raises(osm.InputError, match=r"blocks\.0 is not .*, such as blocks\.0\.linear$"):
        osm.diagnose(Direct(), X)
    assert osm.diagnose(Direct(), X, layers="blocks.*.linear").layers[1] == "blocks.1.linear"


def test_layouts_that_are_given() -> None:
    expected = osm.diagnose(Blocks(), X, seed=0).values.keys()
    assert osm.diagnose(Heads(), X, layout="NBC").tokens == (2, 2)
    maps = Blocks(lambda x: x.mT.unflatten(2, (5, 1)))
    assert osm.diagnose(maps, X, layout="BCHW").values.keys() == expected


def test_outputs_in_tuples_lists_and_dictionaries() -> None:
    model = Blocks()
    plain = osm.diagnose(model, X).values
    for change in (lambda x: (None, [x]), lambda x: {"other": x[0], "last_hidden_state": x}):
        for block in model.blocks:
            block.change = change
        assert osm.diagnose(model, X).values == plain


def test_a_graph_without_edges_has_no_mad() -> None:
    lonely = pyg_data.Data(x=NODES, edge_index=EDGES[:, :0])
    report = osm.diagnose(gcn(), lonely)
    assert report["mad"] == [None, None] and report["dirichlet_energy"] == [0, 0]
    assert "–" in str(report)


def test_matplotlib_and_files_that_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = osm.diagnose(Blocks(), X)
    for write in (report.plot, report.to_csv):
        with pytest.raises(osm.InputError, match="cannot be written"):
            write(tmp_path / "missing" / "layers.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(osm.InputError, match="needs matplotlib .*; pip install matplotlib"):
        report.plot(tmp_path / "layers.png")
    with pytest.raises(KeyError, match="'rank' was not measured"):
        report["rank"]
