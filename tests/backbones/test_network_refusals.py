"""Options that a network cannot have are refused in one line, which names the key."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import small_cnn
import torch
from small_bert import made
from small_cnn import cnn
from small_gcn import network as gcn
from small_pyg import networks
from small_vit import TINY, Swap, vit

from oversmoothing.aggregators.centered import Centered
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.backbones.sparse import Adjacency
from oversmoothing.lab.backbones.t2t import T2TViT
from oversmoothing.lab.backbones.transformer import RandomTransformer

MOBILE = "mobilenetv2_100"


def pyg(conv: str = "GCNConv", **options: Any) -> None:
    networks(conv, **options)


def bert(*aggregators: Any, **options: Any) -> None:
    pytest.importorskip("transformers")
    made(BERT, *aggregators, **options)


def transformer(*aggregators: Any, **options: Any) -> None:
    RandomTransformer([*aggregators], [0], **{"depth": 4, "num_tokens": 6, "dim": 8, **options})


def edges(entries: list) -> None:
    Adjacency(torch.tensor(entries), 4, "row")


def shown(side: int, width: int) -> None:
    vit(depth=1)(torch.zeros(1, 3, side, width))


def seen(stride: int) -> None:
    cnn(output_stride=stride)(torch.zeros(1, 3, stride - 1, 64))


OPTIONS: dict[Callable, dict[str, list]] = {  # key -> values that are refused
    gcn: {
        "depth": [0],
        "dropout": [1.0],
        "residual": [-1],
        "init": ["xavier"],
        "branch": ["rezero"],
    },
    partial(gcn, "gcnii"): {"alpha": [1.5], "lam": [0]},
    partial(gcn, "graphcon"): {"dt": [0], "gamma": [-1.0], "alpha": [-1.0]},
    partial(gcn, "g2"): {"p": [0.5]},
    pyg: {
        "hidden": [0],
        "interval": [0, 2],
        "drop_edge": [1.0],
        "branch": ["rezero"],
        "skip": ["x"],
        "lam": [-1.0, 1.0],
        "alpha": [-1.0, 0.5],
    },
    vit: {
        "name": ["deit_smal_patch16_224", "resnet18", f"{TINY}.fb_in22k"]
        + ["vit_base_patch16_siglip_224"],
        "mean": [[0.5]],
        "std": [[0.2, 0.0, 0.2]],
        "image_size": [0, 30],
        "patch": [-1],
        "after": ["norm1", "branches"],
        "blocks": ["last-0", "last-13", "first", [], [12], [True], [0.5]],
        "weights": ["nowhere.pth"],
    },
    partial(T2TViT, []): {"name": ["t2t_vit_8"], "drop_path": [1], "blocks": [[7]]},
    cnn: {
        "name": ["resnet5O", "deit_tiny_patch16_224", "resnet18.fb_in22k"],
        "output_stride": [4],
        "multi_grid": [[1, 2, 4], [2, 2], [1, 0], []],
        "same_padding": [True],
        "weights": ["nowhere.pth"],
    },
    partial(cnn, name=MOBILE): {"multi_grid": [[1, 2, 4]]},
    partial(cnn, output_stride=32): {"multi_grid": [[1, 2]]},
    bert: {
        "position": ["7", [], ["input", "middle"]],
        "heads": [3],
        "weights": ["no.safetensors"],
    },
    transformer: {"num_tokens": [9], "weight_std": [0.0, float("nan"), "1/d"]},
}
CASES = [
    (build, f"backbone.{key}", (), {key: value})
    for build, options in OPTIONS.items()
    for key, values in options.items()
    for value in values
]
CONVOLUTIONS: dict[str, tuple[str, dict]] = {  # conv -> what is named, options
    "GCNCov": ("backbone.conv", {}),
    "Linear": ("backbone.conv", {}),
    "NNConv": ("edge_attr", {}),
    "RGCNConv": ("edge_type", {}),
    "PointNetConv": ("pos", {}),
    "HypergraphConv": ("hyperedge_index", {}),
    "DynamicEdgeConv": ("backbone.conv", {}),
    "DNAConv": ("backbone.conv", {}),
    "MeshCNNConv": ("backbone.conv", {}),
    "ChebConv": ("backbone.options.K", {"options": {}}),
    "GATConv": ("backbone.options.heads", {"options": {"heads": 3}}),
    "GATv2Conv": ("backbone.options.headz", {"options": {"headz": 3}}),
    "SGConv": ("backbone.adjacency", {"adjacency": "row"}),
    "SSGConv": ("backbone.options.cached", {"options": {"alpha": 0.1, "cached": True}}),
    "TAGConv": ("backbone.options.K", {"options": {"K": "three"}}),
    "GraphConv": ("backbone.options.out_channels", {"options": {"out_channels": 3}}),
    "GCN2Conv": ("backbone.skip", {"skip": "initial"}),
    "PNAConv": ("PNAConv", {"options": {"aggregators": ["men"], "scalers": []}}),
    "EGConv": ("EGConv", {"options": {}}),
    "SAGEConv": ("SAGEConv", {"weights": torch.ones(1)}),
}
CASES += [(pyg, named, (conv,), options) for conv, (named, options) in CONVOLUTIONS.items()]
CASES += [
    (edges, "edges: expected nodes", ([[0, 1], [5, 0]],), {}),
    (edges, "edges: expected nodes", ([[0, 1], [-1, 0]],), {}),
    (edges, "edges: expected integers", ([[0.0, 1.0], [1.0, 0.0]],), {}),
    (edges, "edges: expected integers", ([0, 1],), {}),
    (shown, "100 × 64 pixels", (100, 64), {}),
    (shown, "64 × 8 pixels", (64, 8), {}),
    (seen, "7 × 64 pixels", (8,), {}),
    (seen, "31 × 64 pixels", (32,), {}),
    (cnn, "Centered", (Centered,), {}),
    (cnn, "cannot be combined", (small_cnn.Swap, small_cnn.Cut), {}),
    (partial(gcn, "g2"), "backbone g2 offers only: inside, after", (Swap,), {}),
    (bert, "expected hub, none, or the path", (), {"weights": "."}),
    (vit, "cannot be combined", (Swap, Centered), {}),
    (bert, "cannot be combined", (Swap, Centered), {}),
    (transformer, "cannot be combined", (Swap, Centered), {}),
]


@pytest.mark.parametrize(("build", "named", "given", "options"), CASES)
def test_one_line_names_what_is_wrong(
    build: Callable, named: str, given: tuple, options: dict
) -> None:
    with pytest.raises(InputError) as caught:
        build(*given, **options)
    assert named in str(caught.value) and "\n" not in str(caught.value)
