"""Reading pickles from the internet, graphs and label lists, without running them."""

import contextlib
import pickle
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from scipy.sparse import csr_matrix


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for Python 2; other codecs are refused."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it names the codec {encoding!r}")
    return text.encode("latin1")


_reconstruct = np.empty(0).__reduce__()[0]

# All that the raw files name, some under the names that Python 2 or older numpy gave it.
ALLOWED = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("_codecs", "encode"): _latin1,
    ("scipy.sparse.csr", "csr_matrix"): csr_matrix,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}


class RestrictedUnpickler(pickle.Unpickler):
    """Builds arrays, sparse matrices, lists and dicts, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Looks a global up; UnpicklingError for all but ``ALLOWED``."""
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}") from None


def load(file: BinaryIO, **options: Any) -> Any:
    """``pickle.load`` through the restricted unpickler."""
    return RestrictedUnpickler(file, **options).load()


@contextlib.contextmanager
def restricted() -> Iterator[None]:
    """Within it, torch-geometric reads Planetoid files through the restricted unpickler."""
    import torch_geometric.io.planetoid as reader

    # torch-geometric has no setting for this, so the module's own name `pickle` is rebound.
    original = reader.pickle
    reader.pickle = types.SimpleNamespace(load=load)
    try:
        yield
    finally:
        reader.pickle = original
