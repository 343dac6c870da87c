"""Small models to diagnose, and their inputs."""

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import torch_geometric.nn as pyg
import transformers as hf
from torch import Tensor, nn

import oversmoothing as osm

CYCLE = torch.tensor([[0, 1, 1, 2, 2, 0, 3, 4], [1, 0, 2, 1, 0, 2, 4, 3]])  # and node 5 is alone
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3, "vocab_size": 20}
T5 = {"num_layers": 2, "d_model": 8, "d_ff": 8, "num_heads": 2, "d_kv": 4, "vocab_size": 20}
IDS = torch.randint(1, 20, (3, 7), generator=torch.Generator().manual_seed(0))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def equal(one: osm.Report, other: osm.Report, tolerance: float = 1e-5) -> None:
    assert one.layers == other.layers and one.values.keys() == other.values.keys()
    for metric in one.values:
        own, expected = ([x for x in of[metric] if x is not None] for of in (one, other))
        assert own == pytest.approx(expected, rel=tolerance, abs=tolerance), metric


class Blocks(nn.Module):
    """Two blocks that get the input of the model.

    Args:
        change: of a block's output, what it returns in all; None: the output.
        build: builds a block.
    """

    def __init__(
        self,
        change: Callable[[Tensor], Any] | None = None,
        build: Callable[[], nn.Module] = lambda: nn.Linear(8, 8),
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(build(), change) if change else build() for _ in "12"])
        self.unused = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            block(x)
        return x


class Block(nn.Module):
    def __init__(self, inner: nn.Module, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.change = inner, change

    def forward(self, x: Tensor) -> Any:
        return self.change(self.inner(x))


def vit(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "num_heads": 2, "depth": 2}
    return timm.create_model("vit_tiny_patch16_224", **sizes | options)


def bert(kind: type = hf.BertModel, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = SMALL | {"intermediate_size": 32, "initializer_range": 0.5}
    return kind(hf.BertConfig(**sizes | options)).eval()


def encoder(batch_first: bool = True) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def gcn() -> nn.Module:
    torch.manual_seed(0)
    return pyg.GCN(4, 8, 3).eval()


def captured(model: nn.Module, names: tuple[str, ...], *args: Tensor, **kwargs: Tensor) -> list:
    """What layers return, by plain hooks; the first of several tensors."""
    outputs: list = []
    for name in names:
        layer = model.get_submodule(name)
        layer.register_forward_hook(lambda _, __, out: outputs.append(out))
    with torch.no_grad():
        model.eval()(*args, **kwargs)
    return [out if isinstance(out, Tensor) else out[0] for out in outputs]
