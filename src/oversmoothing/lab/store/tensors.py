"""Loads files of ``torch.save`` after checking their contents.

``torch.load(weights_only=True)`` runs no code, but a file can make it allocate any amount of
memory, by compressed storages, false sizes, or calls such as ``bytearray(10**12)``. So the file is
first read without tensors and checked.
"""

import collections
import math
import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch

from oversmoothing.lab.store.pickles import Unpickler, in_memory

LARGE = 2**24  # largest number of elements of a tensor that is larger than its storage
LEGACY = 4  # pickles before the storages in a file of torch < 1.6: magic, version, system, content


def load(path: Path) -> Any:
    """Loads tensors, numbers, texts, lists and dicts to the CPU.

    Raises:
        pickle.UnpicklingError: the file names other objects, its sizes do not fit, or it is
            damaged.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
        file.seek(0)
        if zipped:
            _look_into_zip(file, size)
        else:
            outline = _Outline(in_memory(file, size), size)
            for _ in range(LEGACY):
                outline.load()
    try:
        return torch.load(path, "cpu", weights_only=True)
    except (OSError, pickle.UnpicklingError):
        raise
    except (Exception, MemoryError) as error:  # torch may raise any error for a damaged file
        raise pickle.UnpicklingError(f"it is damaged ({error})") from error


def _look_into_zip(file: BinaryIO, size: int) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            if packed or sum(member.file_size for member in members) > size:
                raise pickle.UnpicklingError("its parts are larger than the file")
            found = [name for name in names if name.endswith("/data.pkl")]
            if len(found) != 1 or len(set(names)) != len(names):
                raise pickle.UnpicklingError("it holds no weights")
            with archive.open(found[0]) as content:
                _Outline(in_memory(content), size).load()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, KeyError) as error:
        raise pickle.UnpicklingError(f"it is damaged ({error})") from error


class _Outline(Unpickler):
    """Reads everything except tensors, and checks that tensors fit into the file.

    Args:
        file: with the pickle.
        size: of the whole file, in bytes.
    """

    def __init__(self, file: BinaryIO, size: int) -> None:
        super().__init__(file, encoding="utf-8")
        self._size, self._stored = size, {}

    def find_class(self, module: str, name: str) -> Any:
        known = getattr(torch, name, None) if module == "torch" and name.isidentifier() else None
        if isinstance(known, torch.dtype):
            return known
        if (module, name) == ("torch.storage", "UntypedStorage"):
            return 1
        if isinstance(known, type) and issubclass(known, torch.storage.TypedStorage):
            return torch.storage._get_dtype_from_pickle_storage_type(name).itemsize
        try:
            return NAMED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name} is not a tensor") from None

    def persistent_load(self, pid: Any) -> int:
        """Returns the number of elements of a storage."""
        kind, itemsize, key, _, count = pid[:5]
        if kind != "storage" or type(itemsize) is not int or type(count) is not int or count < 0:
            raise pickle.UnpicklingError("it has a storage of an unknown kind")
        self._stored[str(key)] = itemsize * count
        if sum(self._stored.values()) > self._size:
            raise pickle.UnpicklingError("its tensors are larger than the file")
        return count

    def restore(self, made: Any, state: Any) -> None:
        if not isinstance(made, collections.OrderedDict):  # notes of Module.state_dict
            super().restore(made, state)


def _tensor(storage: int, offset: int, size: tuple, *_: Any) -> None:
    if math.prod(map(int, size)) > max(storage, LARGE):
        raise pickle.UnpicklingError("it has a tensor that is larger than its storage")


def _ordered(*items: Any) -> collections.OrderedDict:
    if items:
        raise pickle.UnpicklingError("it has a dict of an unknown form")
    return collections.OrderedDict()


def _none(*_: Any) -> None: ...


NAMED = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _none,
    ("torch", "Size"): _none,
    ("torch", "device"): _none,
    ("collections", "OrderedDict"): _ordered,
}
