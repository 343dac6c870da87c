"""Tables in text files, tab between fields; quotes are characters like any other."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from oversmoothing.errors import InputError

Row = dict[str, str]


def rows(
    path: Path, needed: Sequence[str], header: Sequence[str] = ()
) -> Iterator[tuple[int, Row | InputError]]:
    """Lines of a file by number, from 1, and what stands in them by column.

    A line that cannot be used comes as the error that says so, not raised: the reader decides.

    Args:
        path: UTF-8, with or without a byte order mark.
        needed: columns.
        header: names of the columns where the first line does not give them.

    Raises:
        InputError: the file cannot be read, or lacks a column.
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
        if len(fields) == len(columns):
            yield number, dict(zip(columns, fields))
        else:
            yield (
                number,
                InputError(f"{path}:{number}: expected {len(columns)} fields, got {len(fields)}"),
            )


def _lines(path: Path) -> list[str]:
    """Not by ``splitlines``, which ends lines within sentences too."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); put GLUE's TSV files there, or set "
            "paths.data, data.folder or data.task"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: no UTF-8 text ({error.reason}); fetch it again") from error
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if lines == [""]:
        raise InputError(f"{path}: empty; fetch it again")
    return lines
