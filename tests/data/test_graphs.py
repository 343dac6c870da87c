"""The four real graphs: protocols, features, and what happens to bad or malicious files."""

import dataclasses
import fcntl
import hashlib
import pickle
import shutil
import threading
import urllib.request
import warnings
from pathlib import Path

import pytest
import torch
from torch_geometric.utils import is_undirected

from oversmoothing.data import fetch, graphs
from oversmoothing.data.graph import Graph, count_isolated
from oversmoothing.errors import InputError

NAMES = ("cora", "citeseer", "chameleon", "squirrel")
SMALL = ("cora", "chameleon")  # one of each kind, quick to process


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.write_text, (self.marker, "ran")


@pytest.fixture(autouse=True)
def no_urls(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


@pytest.fixture(scope="module")
def load(data_root, tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("cache"))

    def load(name: str, protocol: str = "complement", split: int = 0, normalize=True) -> Graph:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "data citeseer: 48 nodes")
            return graphs.load(name, protocol, split, normalize, str(data_root), cache)

    return load


@pytest.fixture
def copy(data_root, tmp_path) -> Path:
    """A root of our own with Cora's raw files."""
    raw = Path("graphs/Planetoid/Cora/raw")
    (tmp_path / raw).mkdir(parents=True)
    for path in (data_root / raw).iterdir():
        shutil.copyfile(path, tmp_path / raw / path.name)
    return tmp_path


def load_copy(root: Path) -> Graph:
    """Cora from ``root`` as a new process would."""
    graphs.load.cache_clear()
    return graphs.load("cora", "public", 0, True, str(root), str(root / "cache"))


def processed(root: Path) -> Path:
    (path,) = (root / "cache").rglob("data.pt")
    return path


def same(a: Graph, b: Graph) -> bool:
    """Equal in every tensor."""
    keys = [f.name for f in dataclasses.fields(a) if torch.is_tensor(getattr(a, f.name))]
    return all(torch.equal(_plain(a, key), _plain(b, key)) for key in keys)


def _plain(graph: Graph, key: str) -> torch.Tensor:
    value = getattr(graph, key)
    return value.to_dense() if value.layout == torch.sparse_csr else value


# Test nodes of the protocols that generated the tables; nodes, both directions of the edges,
# self-loops, features, classes.
COMPLEMENT = {"cora": 2068, "citeseer": 2707, "chameleon": 456, "squirrel": 1041}
SIZES = {
    "cora": (2708, 10556, 0, 1433, 7),
    "citeseer": (3327, 9104, 0, 3703, 6),
    "chameleon": (2277, 62792, 50, 2325, 5),
    "squirrel": (5201, 396846, 140, 2089, 5),
}
# Share of the largest predictable class that the ±0.00 cells of Table 5 published.
PUBLISHED = {"cora": 7.785, "citeseer": 19.653, "chameleon": 22.368, "squirrel": 19.308}


@pytest.mark.parametrize("name", NAMES)
def test_the_complement_protocol_is_the_published_one(load, name):
    graph = load(name)
    N, E, loops, F, K = SIZES[name]
    assert graph.x.shape == (N, F)
    assert graph.edges.shape == (2, E)
    assert int((graph.edges[0] == graph.edges[1]).sum()) == loops
    assert graph.num_classes == K
    assert int(graph.test.sum()) == COMPLEMENT[name]
    assert (graph.train | graph.val | graph.test).all()
    shares = graph.y[graph.test].bincount() / graph.test.sum() * 100
    assert (shares - PUBLISHED[name]).abs().min() < 0.001


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("protocol", ["public", "complement", "geom-gcn"])
def test_masks_never_overlap(load, name, protocol):
    graph = load(name, protocol)
    total = graph.train.int() + graph.val.int() + graph.test.int()
    assert total.max() == 1
    assert {mask.shape for mask in (graph.train, graph.val, graph.test)} == {graph.y.shape}


def test_public_masks_are_planetoids(load):
    graph = load("cora", "public")
    assert graph.y[graph.train].bincount().tolist() == [20] * 7
    assert (int(graph.val.sum()), int(graph.test.sum())) == (500, 1000)
    other = load("cora", "complement")
    assert torch.equal(graph.train, other.train)
    assert torch.equal(graph.val, other.val)
    assert not (graph.test & ~other.test).any()


@pytest.mark.parametrize("name", SMALL)
def test_the_ten_splits_are_those_of_the_files(data_root, load, name):
    import numpy as np

    seen = set()
    for split in range(10):
        graph = load(name, "geom-gcn", split)
        folder = data_root / "graphs" / graphs.folders(name)[-1]
        file = np.load(folder / f"{name}_split_0.6_0.2_{split}.npz")
        for part in ("train", "val", "test"):
            expected = torch.from_numpy(file[f"{part}_mask"]).bool()
            assert torch.equal(getattr(graph, part), expected)
        seen.add(tuple(graph.test.tolist()))
    assert len(seen) == 10


@pytest.mark.parametrize("name", NAMES)
def test_features_are_sparse_and_normalised(load, name):
    raw, graph = load(name, normalize=False), load(name)
    assert graph.x.layout == torch.sparse_csr
    assert graph.x.values().numel() == raw.x.values().numel() < 0.03 * graph.x.numel()
    sums = raw.x.to_dense().sum(dim=1)
    torch.testing.assert_close(graph.x.to_dense().sum(dim=1), sums / (sums + 1e-6))


@pytest.mark.parametrize("name", NAMES)
def test_edges_go_both_ways_once(load, name):
    graph = load(name)
    assert is_undirected(graph.edges)
    assert graph.edges.unique(dim=1).shape == graph.edges.shape


def test_citeseer_has_48_isolated_nodes_and_15_without_features(data_root, tmp_path):
    with pytest.warns(UserWarning, match="citeseer: 48 nodes have no neighbour"):
        graph = graphs.load(
            "citeseer", "complement", 0, True, root=str(data_root), cache=str(tmp_path)
        )
    assert count_isolated(graph.edges, graph.num_nodes) == 48
    assert int((graph.x.crow_indices().diff() == 0).sum()) == 15


def test_equal_arguments_give_the_same_object(load):
    assert load("cora") is load("cora")
    assert load("cora").checksum == load("cora", "public").checksum
    assert load("cora").checksum != load("cora", "geom-gcn").checksum


BAD = {
    "data.name: expected one of cora, .*got 'corra'; did you mean 'cora'": {"name": "corra"},
    "data.protocol: expected one of public, .*got 'geom'": {"protocol": "geom"},
    "data.split: expected 0 to 9, got 10": {"split": 10},
    "data.split: expected 0 to 9, got -1": {"split": -1},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_arguments_are_refused(message):
    with pytest.raises(InputError, match=message):
        graphs.load(**({"name": "cora"} | BAD[message]))


def test_nothing_is_written_beside_the_raw_files(copy):
    before = sorted(path.name for path in (copy / "graphs").rglob("*"))
    (copy / "graphs/Planetoid/Cora/raw").chmod(0o555)
    (copy / "graphs/Planetoid/Cora").chmod(0o555)
    load_copy(copy)
    assert sorted(path.name for path in (copy / "graphs").rglob("*")) == before


def test_a_truncated_raw_file_is_named(copy):
    path = copy / "graphs/Planetoid/Cora/raw/ind.cora.allx"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="ind.cora.allx: altered or truncated"):
        load_copy(copy)


def test_a_malicious_raw_file_fails_its_checksum(tmp_path):
    raw = tmp_path / "graphs/Planetoid/Cora/raw"
    raw.mkdir(parents=True)
    marker = tmp_path / "ran"
    (raw / "ind.cora.x").write_bytes(pickle.dumps(Malicious(marker), protocol=2))
    with pytest.raises(InputError, match="ind.cora.x: altered or truncated"):
        load_copy(tmp_path)
    assert not marker.exists()


def test_a_malicious_raw_file_with_the_right_checksum_does_not_run(copy, monkeypatch):
    folder, marker = "Planetoid/Cora/raw", copy / "ran"
    content = pickle.dumps(Malicious(marker), protocol=2)
    (copy / "graphs" / folder / "ind.cora.x").write_bytes(content)
    (source,) = fetch.catalogue()[folder]
    files = source.files | {"ind.cora.x": hashlib.sha256(content).hexdigest()}
    fooled = fetch.catalogue() | {folder: [fetch.Source(source.urls, files)]}
    monkeypatch.setattr(fetch, "catalogue", lambda: fooled)
    with pytest.raises(InputError, match="it names pathlib.*so it is not read"):
        load_copy(copy)
    assert not marker.exists()


@pytest.mark.parametrize("keep", [0, 100, -7])
def test_a_damaged_processed_file_is_made_again(copy, keep):
    graph = load_copy(copy)
    path = processed(copy)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.warns(UserWarning, match="data.pt: unreadable, thrown away and made again"):
        again = load_copy(copy)
    assert same(graph, again)


def test_malicious_processed_files_do_not_run(copy):
    graph, marker = load_copy(copy), copy / "ran"
    for name in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        torch.save(Malicious(marker), processed(copy).parent / name)
    with pytest.warns(UserWarning, match="thrown away"):
        again = load_copy(copy)
    assert not marker.exists()
    assert same(graph, again)


def test_the_processed_file_is_used_and_follows_a_moved_root(copy):
    graph = load_copy(copy)
    written = processed(copy).stat().st_mtime_ns
    (copy / "graphs").rename(copy / "elsewhere")
    (copy / "new").mkdir()
    (copy / "elsewhere").rename(copy / "new/graphs")
    graphs.load.cache_clear()
    again = graphs.load("cora", "public", 0, True, str(copy / "new"), str(copy / "cache"))
    assert same(graph, again)
    assert processed(copy).stat().st_mtime_ns == written


def test_one_process_at_a_time(copy):
    load_copy(copy)
    lock = next((copy / "cache").rglob(".lock"))
    done = threading.Event()
    worker = threading.Thread(target=lambda: (load_copy(copy), done.set()))
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        worker.start()
        assert not done.wait(0.5)
    assert done.wait(20)
    worker.join()


def test_a_cache_that_cannot_be_written_is_named(copy):
    (copy / "cache").write_text("a file in its way")
    with pytest.raises(InputError, match="cannot be written.*paths.cache"):
        load_copy(copy)
