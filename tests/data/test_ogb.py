"""OGB's raw layout: written from a small graph, read back, verified."""

import errno
import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.data import ogb
from oversmoothing.lab.data.graph import Graph

N, K = 50, 4
READ = ("x", "y", "train", "val", "test")


def write(path: Path, table: Tensor, form: str = "%d") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, table.numpy(), fmt=form, delimiter=",")


def write_raw(folder: Path, graph: Graph, monkeypatch) -> None:
    """Writes a graph as ogbn-arxiv, one direction of every edge, and publishes its numbers."""
    x, edges = graph.x.to_dense(), graph.edges[:, graph.edges[0] <= graph.edges[1]]
    write(folder / "raw/edge.csv.gz", edges.T)
    write(folder / "raw/node-feat.csv.gz", x, "%.9g")
    write(folder / "raw/node-label.csv.gz", graph.y)
    write(folder / "raw/num-node-list.csv.gz", torch.tensor([graph.num_nodes]))
    parts = {"train": graph.train, "valid": graph.val, "test": graph.test}
    for part, mask in parts.items():
        write(folder / f"split/time/{part}.csv.gz", mask.nonzero()[:, 0])
    counts = (graph.num_nodes, edges.shape[1], x.shape[1], graph.num_classes)
    splits = tuple(int(mask.sum()) for mask in parts.values())
    published = ogb.Published(counts, splits, "time", "arxiv")
    monkeypatch.setitem(ogb.PUBLISHED, "ogbn-arxiv", published)


@pytest.fixture
def small() -> Graph:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 6, generator=generator)
    rows = torch.arange(N)
    edges = torch.stack([rows, rows + 1])[:, :-1]
    part = rows % 3
    return Graph("small", x, rows % K, edges, K, part == 0, part == 1, part == 2, "")


@pytest.fixture
def folder(tmp_path, small, monkeypatch) -> Path:
    folder = tmp_path / "graphs/ogbn_arxiv"
    write_raw(folder, small, monkeypatch)
    return folder


def read(root: Path, **options) -> Graph:
    """The graph as a new process reads it."""
    return ogb.load.__wrapped__(root=str(root), cache=str(root / "cache"), **options)


@pytest.mark.filterwarnings("ignore:data ogbn-arxiv. .* no neighbour")
def test_citations_keep_their_direction_if_asked(folder, small, tmp_path):
    both, directed = read(tmp_path), read(tmp_path, undirected=False)
    assert both.edges.shape[1] == 2 * directed.edges.shape[1]
    sources, targets = small.edges
    assert set(zip(*directed.edges.tolist())) == set(zip(targets.tolist(), sources.tolist()))
    assert all(torch.equal(getattr(both, key), getattr(small, key)) for key in READ)
    assert both.num_classes == K


def test_the_text_is_read_once_and_an_altered_file_again(folder, tmp_path, monkeypatch, small):
    first = read(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(ogb, "_read", lambda *_: pytest.fail("the text was read again"))
        assert read(tmp_path).checksum == first.checksum
    write(folder / "raw/node-label.csv.gz", (small.y + 1) % K)
    assert not torch.equal(read(tmp_path).y, first.y)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


CHANGES = {
    "node-feat.csv.gz: damaged .*; download it again": lambda folder, _: truncate(
        folder / "raw/node-feat.csv.gz"
    ),
    "edge.csv.gz: damaged": lambda folder, _: (folder / "raw/edge.csv.gz").write_bytes(b"no zip"),
    r"not the published ogbn-arxiv: \d+ edges, not": lambda folder, g: write(
        folder / "raw/edge.csv.gz", g.edges.T[1:]
    ),
    "not the published ogbn-arxiv: 49 nodes, not 50": lambda folder, g: write(
        folder / "raw/node-feat.csv.gz", g.x[1:], "%.9g"
    ),
    "16 valid nodes, not 17": lambda folder, g: write(
        folder / "split/time/valid.csv.gz", g.val.nonzero()[1:, 0]
    ),
    "test.csv.gz: no such file; download .*/arxiv.zip, unpack it, and move": lambda folder, _: (
        folder / "split/time/test.csv.gz"
    ).unlink(),
}


@pytest.mark.parametrize("message", CHANGES)
def test_other_files_than_the_published_are_refused(folder, small, tmp_path, message):
    CHANGES[message](folder, small)
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("tensors.pt"))


def test_a_full_disk_names_the_folder_of_the_cache(folder, tmp_path, monkeypatch):
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="tensors.pt: cannot be written .*with paths.cache=…"):
        read(tmp_path)
    assert not list((tmp_path / "cache").rglob("*tensors*"))
