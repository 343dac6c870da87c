"""A raw file that would run code does not."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.io.planetoid import read_file

from oversmoothing.data.unpickle import restricted


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.write_text, (self.marker, "ran")


@pytest.fixture
def marker(tmp_path) -> Path:
    return tmp_path / "ran"


def write_raw(folder: Path, content: bytes) -> None:
    (folder / "ind.cora.x").write_bytes(content)


def test_torch_geometric_alone_would_run_it(tmp_path, marker):
    write_raw(tmp_path, pickle.dumps(Malicious(marker), protocol=2))
    with pytest.raises(TypeError):  # it finds that what it unpickled is no array: too late
        read_file(str(tmp_path), "cora", "x")
    assert marker.exists()


def test_restricted_refuses_it(tmp_path, marker):
    write_raw(tmp_path, pickle.dumps(Malicious(marker), protocol=2))
    with restricted(), pytest.raises(pickle.UnpicklingError, match="it names pathlib"):
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
    ],
)
def test_neither_builtins_nor_other_names_of_allowed_modules(tmp_path, content):
    write_raw(tmp_path, content)
    with restricted(), pytest.raises(pickle.UnpicklingError, match="it names"):
        read_file(str(tmp_path), "cora", "x")


def test_arrays_are_read_as_ever(tmp_path):
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    content = pickle.dumps(array, protocol=2)
    write_raw(tmp_path, content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    with restricted():
        assert read_file(str(tmp_path), "cora", "x").tolist() == array.tolist()


def test_the_reader_is_given_back(tmp_path):
    import torch_geometric.io.planetoid as reader

    with pytest.raises(RuntimeError), restricted():
        assert reader.pickle is not pickle
        raise RuntimeError
    assert reader.pickle is pickle
