"""Reads pickles of unknown origin without running code, crashing or using unbounded memory.

Python's compiled unpickler trusts its input: a few bytes can make it allocate gigabytes or call any
function. This unpickler derives from the one written in Python, and accepts only opcodes of plain
data. Subclasses define which names a file may refer to.
"""

import io
import pickle
from types import FunctionType
from typing import Any, BinaryIO

PLAIN = (str, int, float, bytes, type(None))  # allowed keys; hashing nested tuples could crash
REFUSED = (  # opcodes of other objects, of sets, and of buffers outside the file
    *("INST", "OBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "EMPTY_SET", "ADDITEMS"),
    *("FROZENSET", "BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER"),
)


class Unpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Builds numbers, texts, tuples, lists, dicts, and objects that a subclass allows.

    Args:
        file: read from its current position.
        options: of ``pickle.Unpickler``.
    """

    dispatch = {
        code: method
        for code, method in pickle._Unpickler.dispatch.items()  # type: ignore[attr-defined]
        if code not in [getattr(pickle, name)[0] for name in REFUSED]
    }

    def load(self) -> Any:
        """Reads one object; raises only pickle.UnpicklingError."""
        try:
            return super().load()
        except (pickle.UnpicklingError, OSError):
            raise
        except (Exception, MemoryError, RecursionError) as error:
            reason = f"{type(error).__name__}: {str(error)[:80]}"
            raise pickle.UnpicklingError(f"it is damaged ({reason})") from error

    def find_class(self, module: str, name: str) -> Any:
        """Resolves a name in the file to an object, or to a function that the file may call."""
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def restore(self, made: Any, state: Any) -> None:
        """Sets the state of an object."""
        raise pickle.UnpicklingError(f"it changes a {type(made).__name__}")

    def make(self, kind: Any, arguments: tuple) -> Any:
        """Creates an object of a class."""
        raise pickle.UnpicklingError(f"it makes a {kind}")

    def _reduce(self) -> None:
        arguments = self.stack.pop()
        call = self.stack[-1]
        if not isinstance(call, FunctionType) or not isinstance(arguments, tuple):
            raise pickle.UnpicklingError("it calls what it may not")
        self.stack[-1] = call(*arguments)

    def _build(self) -> None:
        state = self.stack.pop()
        self.restore(self.stack[-1], state)

    def _newobj(self) -> None:
        arguments = self.stack.pop()
        self.stack.append(self.make(self.stack.pop(), arguments))

    def _setitems(self) -> None:
        items = self.pop_mark()
        _fill(self.stack[-1], items)

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _fill(self.stack[-1], [key, value])

    def _dict(self) -> None:
        items = self.pop_mark()
        made: dict = {}
        _fill(made, items)
        self.append(made)

    def _appends(self) -> None:
        items = self.pop_mark()
        _list(self.stack[-1]).extend(items)

    def _append(self) -> None:
        item = self.stack.pop()
        _list(self.stack[-1]).append(item)

    dispatch |= {pickle.REDUCE[0]: _reduce, pickle.BUILD[0]: _build, pickle.NEWOBJ[0]: _newobj}
    dispatch |= {pickle.SETITEM[0]: _setitem, pickle.SETITEMS[0]: _setitems, pickle.DICT[0]: _dict}
    dispatch |= {pickle.APPEND[0]: _append, pickle.APPENDS[0]: _appends}


def in_memory(file: BinaryIO, most: int = 2**31) -> io.BytesIO:
    """Reads the rest of a file; raises pickle.UnpicklingError beyond ``most`` bytes."""
    content = file.read(most + 1)
    if len(content) > most:
        raise pickle.UnpicklingError(f"it is larger than {most:,} bytes")
    return io.BytesIO(content)


def _fill(made: Any, items: list) -> None:
    if not isinstance(made, dict) or not all(isinstance(key, PLAIN) for key in items[::2]):
        raise pickle.UnpicklingError("it has keys that are neither texts nor numbers")
    made.update(zip(items[::2], items[1::2], strict=True))


def _list(made: Any) -> list:
    if type(made) is not list:
        raise pickle.UnpicklingError("it appends to an object other than a list")
    return made
