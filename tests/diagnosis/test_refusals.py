"""What cannot be measured is refused in one line that names the argument and the way out."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from diagnosed import Blocks, draw, encoder, vit
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import oversmoothing as osm

X, NODES, EDGES = draw(2, 5, 8), draw(4, 3), torch.tensor([[0, 1], [1, 0]])
ONES, BOOLS = torch.tensor([0, 0, 1, 1]), torch.ones(4).bool()
IMAGES = torch.rand(2, 3, 32, 32)


class Heads(nn.Module):
    """Torch's attention, whose first axis could be tokens or samples."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


class WithEdges(Blocks):
    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return super().forward(x)


class Open(Blocks):
    def forward(self, x: Tensor, **_: Any) -> Tensor:
        return super().forward(x)


class Direct(Blocks):
    """Calls the parts of its blocks."""

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks[1].inner(self.blocks[0].inner(x))


class TwoStacks(Blocks):
    """The larger stack is for other inputs, such as images."""

    def __init__(self) -> None:
        super().__init__(lambda x: x)
        self.visual = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 64) for _ in range(2))


def gcn() -> nn.Module:
    return pyg.GCN(3, 8, 2)


def sgformer() -> nn.Module:
    """Its dense layers have an axis for graphs."""
    return pyg.models.SGFormer(3, 8, 3)


def jit() -> nn.Module:
    return torch.jit.trace(nn.Linear(8, 8), X)


def two(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(build(), build())


def returning(change: Callable[[Tensor], Any]) -> Callable[[], nn.Module]:
    return lambda: Blocks(change)


def as_nested(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor([*x], layout=torch.jagged)


REFUSED: dict[str, tuple[Callable[[], Any], tuple, dict[str, Any], str]] = {  # … -> what is named
    "no blocks": (lambda: nn.Linear(8, 8), (X,), {}, "layers"),
    "no tokens": (returning(lambda x: "text"), (X,), {}, "layers"),
    "flat": (returning(lambda x: x[:, 0]), (X,), {}, "layers"),
    "integers": (returning(lambda x: x.long()), (X,), {}, "layers"),
    "kinds": (returning(lambda x: {"a": x, "b": x[:1]}), (X,), {}, "layers"),
    "graphs in two axes": (sgformer, (NODES, EDGES, ONES), {}, "layers"),
    "maps": (returning(lambda x: x[..., None]), (X,), {}, "layout"),
    "swapped": (returning(lambda x: x.transpose(0, 1)), (X,), {}, "layout"),
    "heads": (two(Heads), (X,), {}, "layout"),
    "layout": (Blocks, (X,), {"layout": "NCB"}, "layout"),
    "one token": (returning(lambda x: x[:, :1]), (X,), {}, "blocks.0"),
    "nan": (returning(lambda x: x / 0), (X,), {}, "blocks.0"),
    "jit": (jit, (X,), {}, "model"),
    "lazy": (two(lambda: nn.LazyLinear(8)), (X,), {}, "model"),
    "meta": (lambda: Blocks().to("meta"), (X,), {}, "model"),
    "no forward": (lambda: nn.ModuleList([Blocks(), Blocks()]), (X,), {}, "model"),
    "no model": (lambda: "model", (X,), {}, "model"),
    "jit inside": (two(jit), (X,), {}, "layers"),
    "glob": (Blocks, (X,), {"layers": "block.*"}, "layers"),
    "stranger": (Blocks, (X,), {"layers": nn.Linear(1, 1)}, "layers"),
    "no layers": (Blocks, (X,), {"layers": []}, "layers"),
    "not called": (Blocks, (X,), {"layers": "unused"}, "layers"),
    "segments": (Blocks, (X,), {"segments": torch.tensor([0, 7, 10])}, "segments"),
    "descending": (Blocks, (X,), {"segments": torch.tensor([0, 5, 3, 10])}, "segments"),
    "no sequence": (Blocks, (X,), {"segments": torch.full((5,), -1)}, r"blocks\.0"),
    "sequences of nodes": (gcn, (NODES, EDGES), {"segments": ONES}, "segments"),
    "detached": (Blocks, (X,), {"loss": lambda out: out.detach().sum()}, "loss"),
    "labels by type": (gcn, (NODES, EDGES), {"labels": {"a": ONES}}, "labels"),
    "pairs": (Blocks, (X,), {"pairs": {"first": 0}}, "pairs"),
    "pair of a metric": (Blocks, (X,), {"pairs": {"norm": (0, 1)}}, "pairs"),
    "pair elsewhere": (Blocks, (X,), {"pairs": {"first": (0, 5)}}, "pairs"),
    "streams": (returning(lambda x: x[:, :, None].expand(-1, -1, 4, -1)), (X,), {},
                r"layers: .*blocks\.0\.inner$|"),
    "streams first": (returning(lambda x: x.expand(4, -1, -1, -1)), (X,), {}, "layers"),
    "not called, beside others": (TwoStacks, (X,), {}, r"layers: .*such as blocks\.\*$|"),
    "called inside": (lambda: Direct(lambda x: x), (X,), {}, r"layers: .*blocks\.0\.inner$|"),
    "no inputs": (Blocks, (), {}, "inputs"),
    "nested": (encoder, (torch.nested.nested_tensor([*X]),), {}, "inputs"),
    "nested inside": (returning(as_nested), (X,), {}, "layers"),
    "no samples": (Blocks, (X[:0],), {}, "inputs"),
    "samples without tokens": (encoder, (torch.zeros(2, 0, 16),), {}, "inputs"),
    "a dictionary": (Blocks, ({"x": X},), {}, r"inputs: .*diagnose\(model, \*\*inputs\)|"),
    "no batch": (Blocks, (), {"batches": []}, "batches"),
    "both": (Blocks, (X,), {"batches": [X]}, "batches"),
    "labels": (Blocks, (), {"batches": [(X, ONES[:2])]}, r"batches: .*\(x for x, _ in loader\)|"),
    "mask": (Blocks, (X,), {"mask": torch.ones(2, 4).bool()}, "mask"),
    "float mask": (Blocks, (X,), {"mask": torch.full((2, 5), 0.5)}, "mask"),
    "prefix": (Blocks, (X,), {"prefix": 5}, "prefix"),
    "metric": (Blocks, (X,), {"metrics": ["cosin"]}, "metrics"),
    "no edges": (Blocks, (X,), {"metrics": ["mad"]}, "metrics"),
    "none for the model": (gcn, (NODES,), {"edges": EDGES}, r"inputs: .*\(model, x, edge_index\)|"),
    "None as edges": (gcn, (NODES, None), {}, r"inputs: .*\(model, x, edge_index\)|"),
    "missing": (WithEdges, (X,), {}, r"inputs: .*'edges'.*\*\*kwargs|"),
    "reference": (Blocks, (X,), {"reference": "zero"}, "reference"),
    "another": (Blocks, (X,), {"reference": nn.Linear(8, 8)}, "reference"),
    "shallow": (Blocks, (X,), {"layers": "*.*", "reference": nn.ModuleList()}, "reference"),
    "edges shape": (gcn, (NODES, EDGES), {"edges": EDGES.T[:1]}, "edges"),
    "edges range": (gcn, (NODES, EDGES), {"edges": EDGES + 3}, "edges"),
    "argument": (WithEdges, (NODES,), {"edges": EDGES}, "edges"),
    "joined": (gcn, (NODES, EDGES), {"batch": torch.tensor([0, 1, 1, 1])}, "edges"),
    "mask of a graph": (gcn, (NODES, EDGES), {"mask": BOOLS}, "mask"),
    "prefix of a graph": (gcn, (NODES, EDGES), {"prefix": 1}, "prefix"),
    "labels of nodes": (gcn, (NODES, EDGES), {"labels": ONES[:3]}, "labels"),
    "labels of tokens": (Blocks, (X,), {"labels": ONES}, "labels"),
    "no labels": (Blocks, (X,), {"metrics": "group_distance_ratio"}, "metrics"),
    "batch": (gcn, (NODES, EDGES), {"batch": torch.zeros(3).long()}, "batch"),
    "misspelt": (Blocks, (X,), {"layer": None}, "layer: .*'layers'|"),
    "misspelt beside any": (Open, (X,), {"metric": None}, "metric: .*'metrics'|"),
    "misspelt once more": (Open, (X,), {"refrence": None}, "refrence: .*'reference'|"),
}  # fmt: skip
WRONG: dict[str, list] = {
    "layers": [5, [None]],
    "mask": [5, np.ones((2, 17)), torch.ones(2, 17).to_sparse(), torch.ones(2, 17, device="meta")],
    "edges": [5],
    "batch": ["x", ...],
    "labels": [5, torch.ones(2, 17)],
    "prefix": ["x", True, -1],
    "metrics": [5, [None], [[len]], [lambda x: x[0]], [lambda x: x], [lambda x: 1, lambda x: 2],
                [max], [lambda x: x.foo], [lambda x: x.mean() * 1j], IMAGES],
    "loss": [5, len, lambda out: out.loss, lambda out, _: out],
    "seed": ["x", None, 1.5, 1 << 64],
    "segments": [5, torch.tensor(1), torch.ones(2, 17) * 1j],
    "layout": [5],
    "reference": [5],
    "batches": [5, [None], [5], ["x"], [IMAGES.numpy()], IMAGES.numpy(), IMAGES, [IMAGES[0]]],
    "inputs": [None, 5, "x", [*IMAGES], IMAGES.numpy(), IMAGES[0], iter([IMAGES]),
               DataLoader(TensorDataset(IMAGES)), TensorDataset(IMAGES)],
}  # fmt: skip


def refused(model: Any, key: str, *inputs: Any, **options: Any) -> None:
    """The message starts with a key, or fits a pattern ``…|``, and has one line."""
    pattern = f"^{key[:-1]}" if key.endswith("|") else f"^{key}: "
    with pytest.raises(osm.InputError, match=pattern) as found:
        osm.diagnose(model, *inputs, **options)
    assert "\n" not in str(found.value)
    if isinstance(model, nn.Module):
        assert model.training and not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line(case: str) -> None:
    build, inputs, options, key = REFUSED[case]
    refused(build(), key, *inputs, **options)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_types_are_refused_by_name(name: str) -> None:
    model = vit()
    for value in WRONG[name]:
        inputs = () if name == "batches" else (value if name == "inputs" else IMAGES,)
        options = {"reference": "random"} if name == "seed" else {}
        refused(model, name, *inputs, **options, **({} if name == "inputs" else {name: value}))


def test_what_the_messages_ask_for_works() -> None:
    assert osm.diagnose(Open(), X, output_attentions=False)
    direct = Direct(lambda x: x)
    assert osm.diagnose(direct, X, layers="blocks.*.inner").layers[1] == "blocks.1.inner"
    expected = osm.diagnose(Blocks(), X)
    assert osm.diagnose(two(Heads)(), X, layout="NBC").tokens == (2, 2)
    maps = Blocks(lambda x: x.mT.unflatten(2, (5, 1)))
    assert osm.diagnose(maps, X, layout="BCHW").values.keys() == expected.values.keys()
    with pytest.raises(KeyError, match="'rank' was not measured"):
        expected["rank"]


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
