"""Diagnosing needs no more memory than a forward pass: activations are measured and dropped."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import oversmoothing as osm


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all live tensors that operations have created."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage._cdata for storage in storages((args, kwargs))}  # of views
        for storage in storages(result):
            if storage._cdata not in self.live.keys() | given:
                self.live[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.live.pop, storage._cdata)
        self.peak = max(self.peak, sum(self.live.values()))
        return result


def storages(values: Any) -> list[Any]:
    return [x.untyped_storage() for x in tree_leaves(values) if isinstance(x, Tensor)]


def peak(run: Callable, *args: Any, **kwargs: Any) -> int:
    with LiveBytes() as count:
        run(*args, **kwargs)
    return count.peak


def test_the_count_sees_what_is_kept() -> None:
    x = torch.zeros(1000)
    assert peak(lambda: [x + 1, x + 2]) == 8000
    assert peak(lambda: (x + 1).sum() + (x + 2).sum()) < 4100


def vit() -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", img_size=112, depth=3)


def bert() -> nn.Module:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
    return hf.BertModel(hf.BertConfig(**sizes, intermediate_size=256))


MASK = torch.ones(16, 64, dtype=torch.long).tril(32)
CASES = {
    "vit": (vit, (torch.rand(16, 3, 112, 112),), {}),
    "bert": (bert, (torch.ones(16, 64, dtype=torch.long),), {"attention_mask": MASK}),
    "graph": (
        lambda: pyg.GCN(64, 64, 4),
        (torch.rand(5000, 64), torch.randint(0, 5000, (2, 20_000))),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_peak_is_within_5_percent_of_a_forward_pass(name: str) -> None:
    build, args, kwargs = CASES[name]
    model = build().eval()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    with torch.no_grad():
        plain = weights + peak(model, *args, **kwargs)
    assert weights + peak(osm.diagnose, model, *args, **kwargs) <= 1.05 * plain
