"""Data sets of torch-geometric: found by name, read without network, refused in one line."""

import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data import planetoid
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.data.pyg import load
from oversmoothing.lab.launch.command import configs

SPLIT = [0.6, 0.2, 0.2]
ROMAN = {"dataset": "HeterophilousGraphDataset", "options": {"name": "Roman-empire"}}
RAW = Path("graphs/HeterophilousGraphDataset/roman_empire/raw/roman_empire.npz")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise urllib.error.URLError("no network here")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


@pytest.fixture
def read(tmp_path):
    def read(dataset: str, **arguments) -> Graph:
        own = {"root": str(tmp_path / "data"), "cache": str(tmp_path / "cache")} | arguments
        return load(dataset=dataset, **own)

    return read


@pytest.fixture
def roman(tmp_path) -> dict[str, np.ndarray]:
    """A small graph in the layout of the raw file, with three splits."""
    rng, N = np.random.default_rng(0), 60
    part = rng.permuted(np.tile(np.arange(N) % 3, (3, 1)), axis=1)
    arrays = {
        "node_features": rng.standard_normal((N, 8)).astype(np.float32),
        "node_labels": np.arange(N) % 4,
        "edges": np.stack([np.arange(N), (np.arange(N) * 7 + 1) % N], axis=1),
    }
    arrays |= {f"{p}_masks": part == i for i, p in enumerate(("train", "val", "test"))}
    path = tmp_path / "data" / RAW
    path.parent.mkdir(parents=True)
    np.savez(path, **arrays)
    return arrays


def test_own_masks_are_one_split_or_all(read, roman):
    graph = read(**ROMAN, split=2)
    assert torch.equal(graph.train, torch.from_numpy(roman["train_masks"][2]))
    every = read(**ROMAN, split="each")
    assert torch.equal(every.test, torch.from_numpy(roman["test_masks"]))
    assert every.masks([4])["val"][0].tolist() == np.flatnonzero(roman["val_masks"][1]).tolist()
    assert torch.equal(graph.x, torch.from_numpy(roman["node_features"]))
    assert graph.checksum == every.checksum and read(**ROMAN, split=2) is graph
    with pytest.raises(InputError, match="has 3 splits; expected 0 to 2 or each, got 3"):
        read(**ROMAN, split=3)


def test_other_raw_files_are_not_read_from_the_same_processed_ones(read, roman, tmp_path):
    first, other = read(**ROMAN), tmp_path / "other"
    (other / RAW).parent.mkdir(parents=True)
    np.savez(other / RAW, **roman | {"node_features": 2 * roman["node_features"]})
    assert torch.equal(read(**ROMAN, root=str(other)).x, 2 * first.x)


def test_cora_is_the_same_as_by_its_own_name(read, data_root, tmp_path):
    own = planetoid.load("cora", "public", 0, True, str(data_root), str(tmp_path / "own"))
    name = {"name": "Cora"}
    got = read("Planetoid", options=name, row_normalize=True, root=str(data_root))
    assert torch.equal(got.edges, own.edges) and torch.equal(got.train, own.train)
    assert torch.equal(got.x.to_dense(), own.x.to_dense()) and torch.equal(got.y, own.y)


@pytest.mark.parametrize("split", [0, "each"])
def test_a_data_set_without_masks_is_divided_at_random(read, split):
    graph = read("KarateClub", split_sizes=[1, 5, 10], split=split)
    assert graph.train.shape == ((34,) if split == 0 else (10, 34))
    assert (graph.train.sum(dim=-1) == 4).all() and (graph.val.sum(dim=-1) == 5).all()


def test_a_generated_data_set_follows_from_the_seed_alone(read, tmp_path):
    options = {"avg_num_nodes": 80, "edge_dim": 1}
    graph = read("FakeDataset", options=options, split_sizes=SPLIT)
    before = torch.random.get_rng_state()
    again = read("FakeDataset", options=options, split_sizes=SPLIT, cache=str(tmp_path / "other"))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert graph.checksum == again.checksum and graph is not again
    other = read("FakeDataset", options=options, split_sizes=SPLIT, seed=1)
    assert other.checksum != graph.checksum
    A = torch.zeros(80 * 3, 80 * 3).index_put_(tuple(graph.edges), graph.weights)
    assert torch.equal(A, A.T) and 0 < graph.weights.min() < graph.weights.max() <= 1
    assert read("FakeDataset", options=options, split_sizes=SPLIT, weights=False).weights is None


BAD = [
    ("data.dataset", {"dataset": "FakeDatset"}),
    ("data.dataset", {"dataset": "Data"}),
    ("data.options.name", {"dataset": "HeterophilousGraphDataset"}),
    ("data.options.nam", {"dataset": "WebKB", "options": {"nam": "Texas", "name": "Texas"}}),
    ("data.options.name", {"dataset": "WebKB", "options": {"name": 3}}),
    ("data.options: WebKB", {"dataset": "WebKB", "options": {"name": "Utah"}}),
    ("data.split_sizes", {"dataset": "KarateClub"}),
    ("data.split_sizes", {"dataset": "FakeDataset"}),
    ("3 graphs", {"dataset": "FakeDataset", "options": {"num_graphs": 3}}),
    ("several types", {"dataset": "FakeHeteroDataset", "split_sizes": SPLIT}),
    ("roman_empire.npz", ROMAN),
]


@pytest.mark.parametrize(("named", "arguments"), BAD)
def test_what_cannot_be_used_is_refused_in_one_line(read, named, arguments, tmp_path):
    with pytest.raises(InputError) as caught:
        read(**arguments)
    assert named in str(caught.value) and "\n" not in str(caught.value)


def test_offline_nothing_is_downloaded(read, monkeypatch):
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    with pytest.raises(InputError, match="OVERSMOOTHING_OFFLINE=1 forbids downloads.*put them"):
        read(**ROMAN)


def test_options_come_from_the_command_line(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ["data=pyg", "data.dataset=FakeDataset", "data.split_sizes=[0.6,0.2,0.2]"]
    [config] = configs([*words, "data.options.avg_num_nodes=90", "data.split=each"])
    assert build(config.data).train.shape[0] == 10
    with pytest.raises(Problems, match="data.options.avg_num_nodes: expected a whole number"):
        configs([*words, "data.options.avg_num_nodes=x"])
