"""Raw and processed files of Cora: damaged, moved, read-only."""

import shutil
from pathlib import Path

import pytest
import torch

from oversmoothing.lab.data import planetoid
from oversmoothing.lab.data.graph import Graph

RAW = Path("graphs/Planetoid/Cora/raw")


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


@pytest.mark.parametrize("kept", [0, -7])
def test_a_damaged_processed_file_is_made_again(copy, kept):
    graph, path = load_copy(copy), processed(copy)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.warns(UserWarning, match="deleted and written anew"):
        again = load_copy(copy)
    assert same(graph, again)
