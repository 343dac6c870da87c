"""Read pickles of unknown origin, graphs and label lists, without running code in them."""

import contextlib
import pickle
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from scipy.sparse import csr_matrix


def _latin1(text: str, encoding: str) -> bytes:
    """Decodes bytes that Python 3 wrote for Python 2; refuses other codecs."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it names the codec {encoding!r}")
    return text.encode("latin1")


_reconstruct = np.empty(0).__reduce__()[0]

# Everything that the raw files refer to, some of it under the names of Python 2 or older numpy.
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
        """Looks up a global. UnpicklingError: it is not in ``ALLOWED``."""
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}") from None


def load(file: BinaryIO, **options: Any) -> Any:
    """Does what ``pickle.load`` does, with the restricted unpickler."""
    return RestrictedUnpickler(file, **options).load()


@contextlib.contextmanager
def restricted() -> Iterator[None]:
    """Makes torch-geometric read Planetoid files with the restricted unpickler."""
    import torch_geometric.io.planetoid as reader

    # torch-geometric has no setting for this: replace the name `pickle` in its module
    original = reader.pickle
    reader.pickle = types.SimpleNamespace(load=load)
    try:
        yield
    finally:
        reader.pickle = original
