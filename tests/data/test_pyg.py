"""Raw and processed files of Cora: altered, damaged, malicious, moved, read-only, in use."""

import hashlib
import pickle
import shutil
import threading
import urllib.request
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from malicious import Malicious

from oversmoothing.errors import InputError
from oversmoothing.lab.data import fetch, planetoid
from oversmoothing.lab.data.graph import Graph

RAW = Path("graphs/Planetoid/Cora/raw")


@pytest.fixture(autouse=True)
def no_urls(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)


@pytest.fixture
def copy(data_root, tmp_path) -> Path:
    """A root of our own with Cora's raw files."""
    (tmp_path / RAW).mkdir(parents=True)
    for path in (data_root / RAW).iterdir():
        shutil.copyfile(path, tmp_path / RAW / path.name)
    return tmp_path


def load_copy(root: Path) -> Graph:
    """Cora from ``root`` as a new process would."""
    planetoid.load.cache_clear()
    return planetoid.load("cora", "public", 0, True, str(root), str(root / "cache"))


def processed(root: Path) -> Path:
    return next((root / "cache").rglob("data.pt"))


def same(a: Graph, b: Graph) -> bool:
    """Equal in features, labels, edges and masks."""
    pairs = [(getattr(a, key), getattr(b, key)) for key in ("y", "edges", "train", "val", "test")]
    return all(torch.equal(*pair) for pair in [*pairs, (a.x.to_dense(), b.x.to_dense())])


def test_nothing_is_written_beside_the_raw_files(copy):
    before = sorted(path.name for path in (copy / "graphs").rglob("*"))
    for folder in (copy / RAW, (copy / RAW).parent):
        folder.chmod(0o555)
    load_copy(copy)
    assert sorted(path.name for path in (copy / "graphs").rglob("*")) == before


def test_a_malicious_raw_file_fails_its_checksum(tmp_path):
    raw = tmp_path / RAW
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
    with pytest.raises(InputError, match="it names posix.mkdir.*so it is not read"):
        load_copy(copy)
    assert not marker.exists()


@pytest.mark.parametrize("damage", ["none", "half", "malicious"])
def test_a_damaged_processed_file_is_made_again_and_never_run(copy, damage):
    graph, marker = load_copy(copy), copy / "ran"
    path = processed(copy)
    if damage == "malicious":
        for name in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
            torch.save(Malicious(marker), path.parent / name)
    else:
        path.write_bytes(path.read_bytes()[: 0 if damage == "none" else -7])
    with pytest.warns(UserWarning, match="deleted and written anew"):
        again = load_copy(copy)
    assert not marker.exists()
    assert same(graph, again)


def test_the_processed_file_is_used_and_follows_a_moved_root(copy):
    graph = load_copy(copy)
    written = processed(copy).stat().st_mtime_ns
    (copy / "new").mkdir()
    (copy / "graphs").rename(copy / "new/graphs")
    planetoid.load.cache_clear()
    again = planetoid.load("cora", "public", 0, True, str(copy / "new"), str(copy / "cache"))
    assert same(graph, again)
    assert processed(copy).stat().st_mtime_ns == written


def test_one_process_at_a_time(copy):
    load_copy(copy)
    (lock,) = (copy / "cache").rglob(".lock")
    done = threading.Event()
    worker = threading.Thread(target=lambda: (load_copy(copy), done.set()))
    with FileLock(lock):
        worker.start()
        assert not done.wait(0.5)
    assert done.wait(20)
    worker.join()


def test_a_cache_that_cannot_be_written_is_named(copy):
    (copy / "cache").write_text("a file in its way")
    with pytest.raises(InputError, match="cannot be written.*paths.cache"):
        load_copy(copy)
