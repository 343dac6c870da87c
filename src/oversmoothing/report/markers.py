"""Generated text in a written file: ``<!-- name:start --> … <!-- name:end -->``."""

from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.store.files import write_atomically


def replace_between_markers(path: Path, marker: str, text: str) -> None:
    """Puts ``text`` between the markers and leaves all else as it is.

    Raises:
        InputError: no such file, or not exactly one start before one end.
    """
    before, _, after = _split(path, marker)
    content = f"{before}\n{text.strip()}\n{after}".encode()
    write_atomically(path, lambda file: file.write(content))


def is_current(path: Path, marker: str, text: str) -> bool:
    """Whether exactly ``text`` stands between the markers; the ends' white space is free.

    Raises:
        InputError: as ``replace_between_markers``.
    """
    return _split(path, marker)[1].strip() == text.strip()


def _split(path: Path, marker: str) -> tuple[str, str, str]:
    """Up to and with the start, what is between, the end and after it."""
    start, end = f"<!-- {marker}:start -->", f"<!-- {marker}:end -->"
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    once = content.count(start) == content.count(end) == 1
    if not once or content.find(end) < content.find(start):
        raise InputError(f"{path}: expected one line {start} and after it one line {end}; add them")
    before, _, rest = content.partition(start)
    between, _, after = rest.partition(end)
    return before + start, between, end + after
