"""A raw file that would run code does not."""

import io
import os
import pickle
import warnings
import zipfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.io.planetoid import read_file

from oversmoothing.lab.data.fetch import catalogue, ensure
from oversmoothing.lab.data.unpickle import loads, restricted
from oversmoothing.lab.store import tensors


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def marker(tmp_path) -> Path:
    return tmp_path / "ran"


def write_raw(folder: Path, content: bytes) -> None:
    (folder / "ind.cora.x").write_bytes(content)


def test_torch_geometric_alone_would_run_it(tmp_path, marker):
    write_raw(tmp_path, pickle.dumps(Malicious(marker), protocol=2))
    with pytest.raises(TypeError):  # raised only after the code has run
        read_file(str(tmp_path), "cora", "x")
    assert marker.exists()


def test_other_threads_unpickle_as_before() -> None:
    content = pickle.dumps(Counter("aab"))
    with restricted(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(pickle.loads, content).result() == Counter("aab")
        with pytest.raises(pickle.UnpicklingError, match="it names collections.Counter"):
            pickle.loads(content)
    assert pickle.loads(content) == Counter("aab")


def test_a_thread_that_waited_does_not_restrict_the_first_one() -> None:
    content, reads, done = pickle.dumps(Counter("aab")), Event(), Event()

    def read() -> None:
        with restricted():
            reads.set()
            done.wait()

    with ThreadPoolExecutor(1) as pool:
        with restricted():
            pool.submit(read)
            reads.wait(0.2)  # it reaches the lock
        reads.wait()
        try:
            assert pickle.loads(content) == Counter("aab")
        finally:
            done.set()


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
    ],
)
def test_neither_builtins_nor_other_names_of_allowed_modules(tmp_path, content):
    write_raw(tmp_path, content)
    with restricted(), pytest.raises(pickle.UnpicklingError, match="it names"):
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


def test_tensors_are_loaded_without_running_code(tmp_path, marker):
    torch.save(Malicious(marker), tmp_path / "data.pt")
    with restricted(), pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "data.pt", weights_only=False)
    assert not marker.exists()


def opcodes(*parts: bytes) -> bytes:
    return b"\x80\x02" + b"".join(parts) + b"."


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
OBJECTS = b"(cnumpy\ndtype\n(U\x02O8K\x00K\x01tR"


@pytest.mark.parametrize(
    "content, reason",
    [
        (opcodes(b"cnumpy\nndarray\n(K\x01tR"), "calls what it may not"),
        (opcodes(ARRAY, b"(K\x01(K\x01t", OBJECTS[1:], b"\x89U\x08AAAAAAAAtb"), "array of objects"),
        (opcodes(ARRAY, b"(K\x01(K\x09t", OBJECTS[1:], b"\x89]tb"), "array of objects"),
        (opcodes(ARRAY, b"(K\x01(J\xff\xff\xff\x7ftcnumpy\ndtype\n(U\x02f8tR\x89U\x01Atb"), "size"),
        (opcodes(b"cnumpy\ndtype\n(U\x0aV999999999tR"), "an array of 'V999999999'"),
        (opcodes(b"}(", b")" + b"\x85" * 10**6, b"K\x00u"), "keys"),
        (opcodes(b"]r\xff\xff\xff\x7f", b"K\x00a"), None),
        (opcodes(b"\x8a\xff"), "damaged"),
        (opcodes(b"\x8f"), "damaged"),
    ],
)
def test_pickles_that_would_crash_or_fill_the_memory(content: bytes, reason: str | None) -> None:
    if reason is None:  # the compiled unpickler would allocate 16 GiB for its memo
        assert loads(content) == [0]
        return
    with pytest.raises(pickle.UnpicklingError, match=reason):
        loads(content, encoding="latin1")


def test_a_sparse_matrix_that_points_outside_of_itself() -> None:
    matrix = csr_matrix(np.eye(3))
    matrix.indices[0] = 10**6  # scipy would write there
    with pytest.raises(pickle.UnpicklingError, match="damaged"):
        loads(pickle.dumps(matrix, protocol=2))


def test_a_type_that_numpy_shares_is_not_changed() -> None:
    swap = opcodes(
        b"cnumpy\ndtype\n(U\x02f8K\x00K\x00tR(K\x03U\x01>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    assert loads(swap, encoding="latin1") == np.dtype(">f8")
    assert np.dtype("f8").byteorder == "="


def rezipped(path: Path, change, how: int = zipfile.ZIP_STORED) -> None:
    parts = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w", how) as archive:
        for name in parts.namelist():
            archive.writestr(name, change(name, parts.read(name)))


LARGER = {b"K\x04tq": b"J\x00\x00\x00\x40tq", b"K\x04\x85": b"J\x00\x00\x00\x40\x85"}


@pytest.mark.parametrize("zipped", [True, False])
def test_a_torch_file_that_claims_more_than_it_holds(tmp_path, zipped) -> None:
    path, good = tmp_path / "weights.pt", {"x": torch.arange(4.0), "step": 3}
    torch.save(good, path, _use_new_zipfile_serialization=zipped)
    assert torch.equal(tensors.load(path)["x"], good["x"])

    def grown(name: str, part: bytes) -> bytes:
        for old, new in LARGER.items():
            part = part.replace(old, new) if name.endswith("pkl") else part
        return part

    if zipped:
        rezipped(path, grown)
    else:
        path.write_bytes(grown("pkl", path.read_bytes()).replace(b"K\x04N", b"J\x00\x00\x00\x40N"))
    with pytest.raises(pickle.UnpicklingError, match="larger than"):
        tensors.load(path)


def test_a_torch_file_that_is_compressed_or_calls(tmp_path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"x": torch.zeros(10**5)}, path)
    rezipped(path, lambda name, part: part, zipfile.ZIP_DEFLATED)
    with pytest.raises(pickle.UnpicklingError, match="larger than"):
        tensors.load(path)
    call = opcodes(b"c__builtin__\nbytearray\n\x8a\x05\x00\x00\x00\x00\x10\x85R")
    torch.save({"x": torch.zeros(1)}, path)
    rezipped(path, lambda name, part: call if name.endswith("pkl") else part)
    with pytest.raises(pickle.UnpicklingError, match="bytearray"):
        tensors.load(path)
