"""Generated text in a written file: ``<!-- name:start --> … <!-- name:end -->``."""

from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.store.files import write_text


def replace_between_markers(path: Path, marker: str, text: str) -> None:
    """Replaces the text between two markers and leaves everything else as it is.

    Raises:
        InputError: no such file, or not exactly one start before one end.
    """
    start, end = f"<!-- {marker}:start -->", f"<!-- {marker}:end -->"
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    once = content.count(start) == content.count(end) == 1
    if not once or content.find(end) < content.find(start):
        raise InputError(f"{path}: expected one line {start} and after it one line {end}; add them")
    before, _, rest = content.partition(start)
    after = rest.partition(end)[2]
    write_text(path, f"{before}{start}\n{text.strip()}\n{end}{after}")
