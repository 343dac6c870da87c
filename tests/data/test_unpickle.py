"""A raw file that would run code does not."""

import os
import pickle
import warnings
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from malicious import Malicious
from torch_geometric.io.planetoid import read_file

from oversmoothing.lab.data.fetch import catalogue, ensure
from oversmoothing.lab.data.unpickle import restricted


@pytest.fixture
def marker(tmp_path) -> Path:
    return tmp_path / "ran"


def write_raw(folder: Path, content: bytes) -> None:
    (folder / "ind.cora.x").write_bytes(content)


def test_restricted_refuses_it(tmp_path, marker):
    write_raw(tmp_path, pickle.dumps(Malicious(marker), protocol=2))
    with restricted(), pytest.raises(pickle.UnpicklingError, match="it names posix.mkdir"):
        read_file(str(tmp_path), "cora", "x")
    assert not marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n.",
        b"cnumpy\ndtype.__class__\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.",
        b"c_codecs\nencode\n(Vx\nVzip\ntR.",
    ],
)
def test_neither_builtins_nor_other_names_of_allowed_modules(tmp_path, content):
    write_raw(tmp_path, content)
    with restricted(), pytest.raises(pickle.UnpicklingError, match="it names"):
        read_file(str(tmp_path), "cora", "x")


def test_an_array_is_made_by_its_content_alone(tmp_path):
    """numpy would take the bytes of a buffer for addresses of objects."""
    write_raw(tmp_path, b"\x80\x02cnumpy\nndarray\n(K\x01cnumpy\ndtype\n(U\x01OtRU\x08AAAAAAAAtR.")
    with restricted(), pytest.raises(TypeError, match="not callable"):
        read_file(str(tmp_path), "cora", "x")


def test_a_dict_of_lists_is_read(tmp_path):
    graph = defaultdict(list, {0: [1, 2], 1: [0], 2: [0]})
    (tmp_path / "ind.cora.graph").write_bytes(pickle.dumps(graph, protocol=2))
    with restricted():
        assert read_file(str(tmp_path), "cora", "graph") == graph


@pytest.mark.parametrize("part", ["x", "tx", "allx", "y", "ty", "ally"])
def test_real_files_are_read_as_without_restriction(data_root, part):
    folder = data_root / "graphs/Planetoid/Cora/raw"
    ensure(catalogue()["Planetoid/Cora/raw"], folder)
    with warnings.catch_warnings():  # numpy and scipy moved what the files name
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = read_file(str(folder), "cora", part)
    with restricted():
        assert torch.equal(read_file(str(folder), "cora", part), expected)


def test_pickle_and_torch_load_are_given_back():
    before = pickle.load, pickle.loads, os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    with pytest.raises(RuntimeError), restricted():
        assert pickle.load is not before[0]
        raise RuntimeError
    after = pickle.load, pickle.loads, os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    assert before == after
