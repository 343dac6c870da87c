"""Reads pickled graphs and label lists without running code that they name."""

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

WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_LOCK = threading.Lock()
_reconstruct = np.empty(0).__reduce__()[0]


def _latin1(text: str, encoding: str) -> bytes:
    """Decodes bytes that Python 3 wrote for Python 2; refuses other codecs."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it names the codec {encoding!r}")
    return text.encode("latin1")


def _empty_array(*_: Any) -> np.ndarray:
    """Returns an array that gets its content next; ``ndarray`` itself would take any memory."""
    return _reconstruct(np.ndarray, (0,), b"b")


# All names that the raw files refer to, including those of Python 2 and older numpy.
ALLOWED = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): "ndarray",  # an argument of _reconstruct
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): _latin1,
    ("scipy.sparse.csr", "csr_matrix"): csr_matrix,
    ("scipy.sparse._csr", "csr_matrix"): csr_matrix,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class RestrictedUnpickler(pickle.Unpickler):
    """Builds only numbers, texts, lists, dicts, arrays and sparse matrices."""

    def find_class(self, module: str, name: str) -> Any:
        """Looks up a name; raises UnpicklingError unless it is in ``ALLOWED``."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return ALLOWED[module, name]


def load(file: BinaryIO, **options: Any) -> Any:
    """Does what ``pickle.load`` does, with the restricted unpickler."""
    return RestrictedUnpickler(file, **options).load()


def loads(content: bytes, **options: Any) -> Any:
    """Does what ``pickle.loads`` does, with the restricted unpickler."""
    return load(io.BytesIO(content), **options)


@contextlib.contextmanager
def restricted() -> Iterator[None]:
    """Makes torch-geometric read pickles with the restricted unpickler, and tensors only.

    torch-geometric has no setting for this. So the functions of ``pickle`` are replaced meanwhile,
    and ``torch.load`` is restricted by its environment variable.
    """
    own = {"load": load, "loads": loads, "Unpickler": RestrictedUnpickler}
    with _LOCK:  # otherwise a second thread would save the replacements as the originals
        originals = {name: getattr(pickle, name) for name in own}
        forced = os.environ.get(WEIGHTS_ONLY)
        vars(pickle).update(own)
        os.environ[WEIGHTS_ONLY] = "1"
        try:
            yield
        finally:
            vars(pickle).update(originals)
            os.environ.pop(WEIGHTS_ONLY)
            if forced is not None:
                os.environ[WEIGHTS_ONLY] = forced
