"""Reads pickled graphs and label lists of unknown origin without running code in them."""

import contextlib
import io
import math
import os
import pickle
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
from scipy.sparse import csr_matrix

from oversmoothing.lab.store.pickles import Unpickler, in_memory

WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
DENSE = 2**29  # entries of a sparse matrix, which its reader may make dense
_LOCK = threading.Lock()
_reconstruct = np.empty(0).__reduce__()[0]


def _refuse(what: str) -> pickle.UnpicklingError:
    return pickle.UnpicklingError(f"it has {what}")


def _latin1(text: str, encoding: str) -> bytes:
    """Decodes bytes that Python 3 wrote for Python 2; refuses other codecs."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it names the codec {encoding!r}")
    return text.encode("latin1")


def _dtype(name: str, align: Any = False, copy: Any = True) -> np.dtype:
    """Builds a new dtype of numbers, texts or objects, never one that numpy shares."""
    if not re.fullmatch(r"[<>|=]?([biufc]\d{1,2}|[SU]\d{1,4}|O8?)", name):
        raise _refuse(f"an array of {name!r}")
    return np.dtype(name, False, True)


def _empty_array(kind: Any, shape: tuple, code: Any) -> np.ndarray:
    if kind is not np.ndarray or shape != (0,):
        raise _refuse("an array of an unknown form")
    return _reconstruct(np.ndarray, (0,), b"b")


def _lists(kind: Any) -> defaultdict:
    if kind is not list:
        raise _refuse("a dict of an unknown form")
    return defaultdict(list)


# All names that the raw files refer to, including those of Python 2 and older numpy.
ALLOWED = {
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): _latin1,
    ("scipy.sparse.csr", "csr_matrix"): csr_matrix,
    ("scipy.sparse._csr", "csr_matrix"): csr_matrix,
    ("collections", "defaultdict"): _lists,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class RestrictedUnpickler(Unpickler):
    """Builds only arrays, sparse matrices, lists and dicts.

    An array of objects must be a scalar, as in a dict that ``numpy.save`` wrote. Sizes are checked
    against the number of bytes in the file.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Looks up a global; raises UnpicklingError unless it is in ``ALLOWED``."""
        return ALLOWED.get((module, name)) or super().find_class(module, name)

    def make(self, kind: Any, arguments: tuple) -> Any:
        if kind is not csr_matrix or arguments:
            super().make(kind, arguments)
        return csr_matrix.__new__(csr_matrix)

    def restore(self, made: Any, state: Any) -> None:
        if isinstance(made, np.dtype):
            _order(made, state)
        elif isinstance(made, np.ndarray):
            _fill(made, *state)
        elif isinstance(made, csr_matrix):
            _fill_sparse(made, state)
        else:
            super().restore(made, state)


def _order(made: np.dtype, state: tuple) -> None:
    """Sets the byte order of a dtype; the rest of its state is ignored."""
    version, order, *parts = state[:5]
    if version not in (3, 4) or order not in ("<", ">", "|", "=") or any(parts):
        raise _refuse("a type of an unknown form")
    sizes = (made.itemsize, made.alignment) if made.kind in "SU" else (-1, -1)
    made.__setstate__((3, order, None, None, None, *sizes, 63 if made.hasobject else 0))


def _fill(made: np.ndarray, version: int, shape: tuple, kind: np.dtype, fortran: Any, content: Any):
    if not isinstance(kind, np.dtype) or any(type(n) is not int or n < 0 for n in shape):
        raise _refuse("an array of an unknown form")
    if kind.hasobject:
        if shape or type(content) is not list or len(content) != 1:
            raise _refuse("an array of objects")
    else:
        content = content.encode("latin1") if isinstance(content, str) else content
        if type(content) is not bytes or len(content) != math.prod(shape) * kind.itemsize:
            raise _refuse("an array of another size than its content")
    made.__setstate__((1, shape, kind, bool(fortran), content))


def _fill_sparse(made: csr_matrix, state: dict) -> None:
    shape = state.get("_shape")
    parts = [state.get(key) for key in ("data", "indices", "indptr")]
    if not all(isinstance(p, np.ndarray) and p.ndim == 1 and p.dtype.kind in "biuf" for p in parts):
        raise _refuse("a sparse matrix of an unknown form")
    if len(shape) != 2 or min(shape) < 0 or math.prod(shape) > DENSE:
        raise _refuse(f"a sparse matrix of {shape} entries")
    made.__init__(tuple(parts), shape=shape)
    made.check_format(full_check=True)  # otherwise scipy could read beyond the arrays


def load(file: BinaryIO, **options: Any) -> Any:
    """Does what ``pickle.load`` does, with the restricted unpickler."""
    return RestrictedUnpickler(in_memory(file), **options).load()


def loads(content: bytes, **options: Any) -> Any:
    """Does what ``pickle.loads`` does, with the restricted unpickler."""
    return load(io.BytesIO(content), **options)


@contextlib.contextmanager
def restricted() -> Iterator[None]:
    """Makes torch-geometric read pickles with the restricted unpickler, and tensors only.

    torch-geometric has no setting for this. So the functions of ``pickle`` are replaced, for this
    thread only, and ``torch.load`` is restricted by its environment variable.
    """
    with _LOCK:  # otherwise a second thread would save the replacements as the originals
        own = {
            "load": _here(load, pickle.load),
            "loads": _here(loads, pickle.loads),
            "Unpickler": RestrictedUnpickler,
        }
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


def _here(restricted: Callable, original: Callable) -> Callable:
    """Returns a function that is restricted in this thread and the original in all others."""
    thread = threading.get_ident()

    def chosen(*args: Any, **options: Any) -> Any:
        function = restricted if threading.get_ident() == thread else original
        return function(*args, **options)

    return chosen
