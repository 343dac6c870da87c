"""Read pickles of unknown origin, graphs and label lists, without running code in them."""

import contextlib
import io
import os
import pickle
import threading
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

WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_LOCK = threading.Lock()

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


def loads(content: bytes, **options: Any) -> Any:
    """Does what ``pickle.loads`` does, with the restricted unpickler."""
    return load(io.BytesIO(content), **options)


@contextlib.contextmanager
def restricted() -> Iterator[None]:
    """Makes torch-geometric read pickles with the restricted unpickler, and tensors only.

    torch-geometric has no setting for this: ``pickle.load`` and ``pickle.loads`` are replaced for
    the whole process, and ``torch.load`` is told by its environment variable.
    """
    with _LOCK:  # or a second thread would restore what the first one has replaced
        originals, forced = (pickle.load, pickle.loads), os.environ.get(WEIGHTS_ONLY)
        pickle.load, pickle.loads = load, loads
        os.environ[WEIGHTS_ONLY] = "1"
        try:
            yield
        finally:
            pickle.load, pickle.loads = originals
            os.environ.pop(WEIGHTS_ONLY)
            if forced is not None:
                os.environ[WEIGHTS_ONLY] = forced
