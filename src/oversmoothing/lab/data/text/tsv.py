"""Reads tab-separated tables, in which quotes have no special meaning."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from oversmoothing.errors import InputError

Row = dict[str, str]


def rows(
    path: Path, needed: Sequence[str], header: Sequence[str] = ()
) -> Iterator[tuple[int, Row | InputError]]:
    """Yields the line numbers, which start at 1, and rows of a file.

    For a broken line, an error is yielded instead of raised, so that the caller can skip the line.

    Args:
        path: file in UTF-8, with or without a byte order mark.
        needed: columns that must exist.
        header: names of the columns; empty: the first line gives them.

    Raises:
        InputError: the file cannot be read, or a column is missing.
    """
    lines = _lines(path)
    columns, first = (list(header), 1) if header else (lines[0].split("\t"), 2)
    if absent := [column for column in needed if column not in columns]:
        raise InputError(
            f"{path}: no column {absent[0]!r}; expected {', '.join(needed)} among "
            f"{', '.join(columns)}; take the file as GLUE's archive has it"
        )
    for number, line in enumerate(lines[first - 1 :], start=first):
        fields = line.split("\t")
        wrong = f"{path}:{number}: expected {len(columns)} fields, got {len(fields)}"
        whole = len(fields) == len(columns)
        yield number, dict(zip(columns, fields)) if whole else InputError(wrong)


def _lines(path: Path) -> list[str]:
    """Splits at newlines only; ``splitlines`` also splits at separators within sentences."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); put GLUE's TSV files there, or set "
            "paths.data, data.folder or data.task"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); download it again") from error
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if lines == [""]:
        raise InputError(f"{path}: empty; download it again")
    return lines
