"""The repeated blocks that are found in models of several libraries."""

from functools import partial

import numpy as np
import pytest
import timm
import torch_geometric.nn as pyg
import transformers as hf
from applied_models import Scale, vit
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import oversmoothing as osm
from oversmoothing.adapters.blocks import chosen, find_blocks
from oversmoothing.errors import InputError

SMALL = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3, "vocab_size": 9}
T5 = {"num_layers": 2, "d_model": 8, "d_ff": 8, "num_heads": 2, "d_kv": 4, "vocab_size": 9}


class OwnGNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(4, 8), pyg.GATConv(8, 3)


class Headed(nn.Module):
    """Convolutions as attributes, and containers of single layers around them."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms = nn.ModuleList(nn.Embedding(99, 64) for _ in range(9))
        self.conv1, self.conv2 = pyg.GCNConv(64, 8), pyg.GCNConv(8, 8)
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(8, 1000) for _ in range(2))


class Mixed(nn.Module):
    """Two kinds of convolutions, with lists of torch-geometric's linear layers and norms."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.ChebConv(8, 8, 2), pyg.GCNConv(8, 8)])
        self.norms = nn.ModuleList(pyg.LayerNorm(8) for _ in range(3))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)


class Attributes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(999, 8)
        self.entry, self.exit = Block(), Block()


class Alternating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.blocks = nn.ModuleList([Block(), Attributes(), Block()])


@pytest.mark.parametrize(
    ("model", "first", "count"),
    [
        (lambda: timm.create_model("vit_tiny_patch16_224"), "blocks.0", 12),
        (lambda: timm.create_model("resnet18"), "layer1.0", 8),
        (lambda: timm.create_model("twins_pcpvt_small"), "blocks.0.0", 16),
        (lambda: hf.BertModel(hf.BertConfig(**SMALL, intermediate_size=8)), "encoder.layer.0", 3),
        (lambda: hf.LlamaModel(hf.LlamaConfig(**SMALL, intermediate_size=8)), "layers.0", 3),
        (lambda: hf.T5Model(hf.T5Config(**T5)), "encoder.block.0", 4),
        (lambda: hf.T5Model(hf.T5Config(**T5, num_decoder_layers=1)), "encoder.block.0", 3),
        (lambda: timm.create_model("resnest14d"), "layer1.0", 4),
        (lambda: pyg.GCN(4, 8, 5), "convs.0", 5),
        (OwnGNN, "first", 2),
        (Headed, "conv1", 2),
        (Mixed, "convs.0", 2),
        (Alternating, "blocks.0", 3),
        (lambda: nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), "0", 2),
    ],
)
def test_blocks_are_found(model, first: str, count: int) -> None:
    network = model()
    blocks = find_blocks(network)
    assert len(blocks) == count and next(iter(blocks)) == first
    assert all(network.get_submodule(name) is block for name, block in blocks.items())


@pytest.mark.parametrize("model", [OwnGNN, lambda: pyg.GIN(8, 8, 3)])
def test_aggregators_are_no_blocks(model) -> None:
    """Neither a block's list of aggregators nor modules in other blocks are taken for blocks."""
    network = model()
    blocks = find_blocks(network)
    osm.apply(network, [Scale, partial(Scale, start=3.0)], blocks=[0])
    assert find_blocks(network) == blocks


def test_blocks_are_chosen() -> None:
    assert chosen("all", 3) == [0, 1, 2] and chosen("last-half", 5) == [3, 4]
    assert chosen("last-1", 3) == [2] and chosen([-1, 0, 2], 3) == [0, 2]
    assert chosen("last-half", 1) == [0]


@pytest.mark.parametrize("blocks", [[-1], [1, 1], [1, -1], np.array([1, -1])])
def test_a_block_that_is_named_twice_has_one_method(blocks) -> None:
    """Negative indices count from the end."""
    model = osm.apply(vit(), "pairnorm", blocks=blocks)
    assert [name for name, m in model.named_modules() if isinstance(m, osm.PairNorm)] == [
        "blocks.1.attn.after.0"
    ]


def test_parametrised_weights_are_no_blocks() -> None:
    lone = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    for _ in range(2):
        spectral_norm(lone[0])
    with pytest.raises(InputError):
        find_blocks(lone)
    layers = nn.Sequential(*(weight_norm(nn.Linear(4, 4)) for _ in range(3)))
    assert list(find_blocks(layers)) == ["0", "1", "2"]
    with pytest.raises(InputError, match=r"^layers: .*'0', '2'"):  # names to choose from
        find_blocks(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)))
