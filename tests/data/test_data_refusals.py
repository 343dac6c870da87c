"""Arguments that cannot be used are refused in one line, which names the key or the part."""

import dataclasses
import warnings
from collections.abc import Callable

import pytest
import torch
from test_build import MASKS, PATH, X, Y, make
from test_build import N as NODES

from oversmoothing.errors import InputError
from oversmoothing.lab.data import csbm, heterophilous, ogb, planetoid, scenes, splits
from oversmoothing.lab.data.augment import Augment, JointAugment
from oversmoothing.lab.data.graph import check_graph

NONE = torch.zeros(NODES, dtype=torch.bool)
NAN = float("nan")
LABELS = torch.arange(600) % 3


def only(*nodes: int) -> torch.Tensor:
    return NONE.index_fill(0, torch.tensor(nodes), True)


def checked(**changes) -> None:
    check_graph(dataclasses.replace(make(), **changes))


def divided(sizes: list[float]) -> None:
    splits.drawn("toy", LABELS, sizes, seed=0)


def chosen(split: int) -> None:
    splits.chosen("toy", splits.drawn("toy", LABELS, [0.6, 0.2, 0.2], seed=0), split)


CALLS: dict[Callable, list[tuple[str, dict]]] = {  # function -> what is named, arguments
    csbm.generate: [
        ("data.homophily", {"homophily": 1.5}),
        ("data.degree", {"degree": 400}),
        ("data.signal", {"signal": float("inf")}),
        ("data.homophily", {"degree": -1, "homophily": 2}),  # all at once
    ],
    planetoid.load: [
        ("data.name", {"name": "corra"}),
        ("data.protocol", {"name": "cora", "protocol": "geom"}),
        ("data.split", {"name": "cora", "split": 10}),
        ("data.split", {"name": "cora", "split": -1}),
        ("data.split", {"name": "cora", "split": 3}),
    ],
    heterophilous.load: [("data.name", {"name": "chameleon"})],
    ogb.load: [("data.name", {"name": "ogbn-proteins"})],
    divided: [
        ("data.split_sizes", {"sizes": sizes})
        for sizes in ([0.6, 0.2], [0.6, 0.3, 0.2], [20, 0.2, 0.2], [20, 500, 100], [201, 1, 1])
    ],
    chosen: [("data.split", {"split": 10})],
    make: [
        ("no node features", {"x": None}),
        ("features (6, F)", {"x": X[:5]}),
        ("features", {"x": X * NAN}),
        ("data.row_normalize", {"x": -X, "row_normalize": True}),
        ("labels", {"y": None}),
        ("3 labels", {"y": torch.zeros(NODES, 3)}),
        ("labels of shape (1,)", {"y": torch.zeros(1).long()}),
        ("0.5", {"y": Y + 0.5}),
        ("two classes", {"y": torch.zeros(NODES).long()}),
        ("data.split_sizes", {"y": Y.index_fill(0, Y.new_tensor(1), -1)}),
        ("edges", {"edge_index": None}),
        ("edges", {"edge_index": PATH + 1}),
        ("edges", {"edge_index": PATH - 1}),
        ("4 edge weights", {"weights": torch.ones(4)}),
        ("data.weights", {"weights": torch.tensor([1, -1, NAN, 1, 1])}),
        ("test", {"masks": (*MASKS[:2], NONE)}),
    ],
    checked: [
        ("class 1", {"train": only(0)}),
        ("class 2", {"num_classes": 3}),
        ("no val node", {"val": NONE}),
        ("features", {"x": torch.full((NODES, 2), float("inf"))}),
        ("2 nodes", {"test": only(0, 1, 5)}),
        ("the val and the test mask", {"test": only(2, 4).expand(3, NODES)}),
        ("y of int64", {"y": Y.float()}),
        ("labels from 0", {"y": Y + 1}),
        ("x of (6, F)", {"x": X[:5]}),
        ("mask train", {"train": torch.tensor([0, 1])}),
        ("edges", {"edges": torch.tensor([[0, 6], [6, 0]])}),
        ("2 nodes or more", {"y": torch.zeros(1, dtype=torch.long)}),
    ],
    JointAugment: [
        ("task.augment.scales", {"scales": []}),
        ("task.augment.scales", {"scales": [0.0, 1.0]}),
        ("task.augment.scales", {"scales": [2.0, 0.5], "discrete": False}),
        ("task.augment.fill", {"fill": [124, 116, 104]}),
    ],
    Augment: [
        ("task.augment.scale", {"scale": [2, 0.5]}),
        ("task.augment.jitter", {"jitter": [0.4, 0.4, 0.2, 0.6]}),
        ("task.augment.jitter", {"jitter": [0.4]}),
        ("task.augment.blur", {"blur": -0.1}),
    ],
    scenes.load: [("data.num_val", {"num_val": 0}), ("data.size", {"size": [16, 64]})],
    scenes.load_crops: [("data.num_train", {"num_train": 0}), ("data.size", {"size": 4})],
}
CASES = [(call, *case) for call, cases in CALLS.items() for case in cases]


@pytest.mark.parametrize(("call", "named", "arguments"), CASES)
def test_one_line_names_what_is_wrong(call: Callable, named: str, arguments: dict) -> None:
    with warnings.catch_warnings(), pytest.raises(InputError) as caught:
        warnings.simplefilter("ignore", UserWarning)
        call(**arguments)
    assert named in str(caught.value) and "\n" not in str(caught.value)
