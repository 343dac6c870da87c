"""What cannot be measured is refused in one line that names the way out."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch_geometric.data as pyg_data
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

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


def vit() -> nn.Module:
    sizes: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", depth=2, **sizes)


def with_edges() -> nn.Module:
    class WithEdges(Blocks):
        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return super().forward(x)

    return WithEdges()


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(8))


def meta() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to("meta")


def sgformer() -> nn.Module:
    """Its dense layers have an axis for graphs."""
    return pyg.models.SGFormer(3, 8, 3)


def returning(change: Callable[[Tensor], Any]) -> Callable[[], nn.Module]:
    return lambda: Blocks(change)


ONES, BOOLS = torch.tensor([0, 0, 1, 1]), torch.ones(4).bool()
REFUSED: dict[str, tuple[Callable[[], Any], tuple, dict[str, Any], str]] = {  # … -> what is named
    "no blocks": (lambda: nn.Linear(8, 8), (X,), {}, "layers"),
    "no tokens": (returning(lambda x: "text"), (X,), {}, "layers"),
    "flat": (returning(lambda x: x[:, 0]), (X,), {}, "layers"),
    "integers": (returning(lambda x: x.long()), (X,), {}, "layers"),
    "kinds": (returning(lambda x: {"a": x, "b": x[:1]}), (X,), {}, "layers"),
    "graphs in two axes": (sgformer, (NODES, EDGES, ONES), {}, "layers"),
    "maps": (returning(lambda x: x[..., None]), (X,), {}, "layout"),
    "swapped": (returning(lambda x: x.transpose(0, 1)), (X,), {}, "layout"),
    "heads": (Heads, (X,), {}, "layout"),
    "layout": (Blocks, (X,), {"layout": "NCB"}, "layout"),
    "one token": (returning(lambda x: x[:, :1]), (X,), {}, "blocks.0"),
    "nan": (returning(lambda x: x / 0), (X,), {}, "blocks.0"),
    "jit": (jit, (X,), {}, "model"),
    "lazy": (lazy, (X,), {}, "model"),
    "meta": (meta, (X,), {}, "model"),
    "no forward": (lambda: nn.ModuleList([Blocks(), Blocks()]), (X,), {}, "model"),
    "no model": (lambda: "model", (X,), {}, "model"),
    "jit inside": (lambda: nn.Sequential(jit(), jit()), (X,), {}, "layers"),
    "glob": (Blocks, (X,), {"layers": "block.*"}, "layers"),
    "stranger": (Blocks, (X,), {"layers": nn.Linear(1, 1)}, "layers"),
    "no layers": (Blocks, (X,), {"layers": []}, "layers"),
    "not called": (Blocks, (X,), {"layers": ["blocks.0", "unused"]}, "layers"),
    "no inputs": (Blocks, (), {}, "inputs"),
    "no samples": (Blocks, (X[:0],), {}, "inputs"),
    "no batch": (Blocks, (), {"batches": []}, "batches"),
    "both": (Blocks, (X,), {"batches": [X]}, "batches"),
    "labels": (Blocks, (), {"batches": [(X, torch.tensor([0, 1]))]}, "batches"),
    "a tensor": (Blocks, (), {"batches": X}, "batches"),
    "mask": (Blocks, (X,), {"mask": torch.ones(2, 4).bool()}, "mask"),
    "float mask": (Blocks, (X,), {"mask": torch.full((2, 5), 0.5)}, "mask"),
    "prefix": (Blocks, (X,), {"prefix": 5}, "prefix"),
    "metric": (Blocks, (X,), {"metrics": ["cosin"]}, "metrics"),
    "no edges": (Blocks, (X,), {"metrics": ["mad"]}, "metrics"),
    "reference": (Blocks, (X,), {"reference": "zero"}, "reference"),
    "another": (Blocks, (X,), {"reference": nn.Linear(8, 8)}, "reference"),
    "shallow": (Blocks, (X,), {"layers": "*.*", "reference": nn.ModuleList()}, "reference"),
    "edges shape": (gcn, (NODES, EDGES), {"edges": EDGES.T[:1]}, "edges"),
    "edges range": (gcn, (NODES, EDGES), {"edges": EDGES + 3}, "edges"),
    "argument": (with_edges, (NODES,), {"edges": EDGES}, "edges"),
    "joined": (gcn, (NODES, EDGES), {"batch": torch.tensor([0, 1, 1, 1])}, "edges"),
    "mask of a graph": (gcn, (NODES, EDGES), {"mask": BOOLS}, "mask"),
    "prefix of a graph": (gcn, (NODES, EDGES), {"prefix": 1}, "prefix"),
    "batch": (gcn, (NODES, EDGES), {"batch": torch.zeros(3).long()}, "batch"),
    "misspelt": (Blocks, (X,), {"layer": None}, "layer"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(case: str) -> None:
    build, inputs, options, key = REFUSED[case]
    model = build()
    with pytest.raises(osm.InputError, match=f"^{key}: ") as refused:
        osm.diagnose(model, *inputs, **options)
    assert "\n" not in str(refused.value)
    if isinstance(model, nn.Module):
        assert model.training and not any(m._forward_hooks for m in model.modules())


IMAGES = torch.rand(2, 3, 32, 32)
WRONG: dict[str, list] = {
    "layers": [5, [None]],
    "mask": [5, np.ones((2, 17))],
    "edges": [5],
    "batch": ["x", ...],
    "prefix": ["x", True, -1],
    "seed": ["a", 1.5, None, 2**70],
    "metrics": [5, [None], [lambda x: 1], [lambda x: x], [lambda x: 1, lambda x: 2]],
    "layout": [5],
    "reference": [5],
    "batches": [5, [None], [5], ["x"], [IMAGES.numpy()], IMAGES.numpy(), IMAGES, [IMAGES[0]]],
    "inputs": [None, 5, "x", [*IMAGES], IMAGES.numpy(), IMAGES[0], iter([IMAGES]),
               DataLoader(TensorDataset(IMAGES)), TensorDataset(IMAGES)],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_types_are_refused_by_name(name: str) -> None:
    model = vit()
    for value in WRONG[name]:
        inputs = () if name == "batches" else (value if name == "inputs" else IMAGES,)
        options = {} if name == "inputs" else {name: value}
        with pytest.raises(osm.InputError, match=f"^{name}: ") as refused:
            osm.diagnose(model, *inputs, **options)
        assert "\n" not in str(refused.value)


def test_hints() -> None:
    """A misspelt option, labels, and a dictionary of arguments."""
    with pytest.raises(osm.InputError, match="did you mean 'layers'"):
        osm.diagnose(Blocks(), X, layer=None)
    with pytest.raises(osm.InputError, match=r"batches=\(x for x, _ in loader\)"):
        osm.diagnose(Blocks(), batches=[(X, torch.tensor([0, 1]))])
    with pytest.raises(osm.InputError, match=r"^inputs: .*diagnose\(model, \*\*inputs\)"):
        osm.diagnose(Blocks(), {"x": X})


def test_blocks_whose_parts_are_called_directly() -> None:
    class Direct(Blocks):
        def forward(self, x: Tensor) -> Tensor:
            return self.blocks[1].linear(self.blocks[0].linear(x))

    with pytest.raises(osm.InputError, match=r"^layers: .*blocks\.0\.linear$"):
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
        with pytest.raises(osm.InputError, match=r"layers\.png: "):
            write(tmp_path / "missing" / "layers.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(osm.InputError, match="^plot: "):
        report.plot(tmp_path / "layers.png")
    with pytest.raises(KeyError, match="'rank' was not measured"):
        report["rank"]
