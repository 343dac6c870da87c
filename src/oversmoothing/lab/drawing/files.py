"""Writes the files of a figure: the picture, and its data as CSV."""

import csv
import gzip
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from oversmoothing.lab.drawing.panels import STYLE
from oversmoothing.lab.store.files import write_atomically


def save(figure: Figure, stem: Path, pdf: bool = False) -> list[Path]:
    """Saves a figure as ``stem``.png, creates its folder if missing, and returns the paths.

    The files contain no date, so the same data give the same files.

    Args:
        pdf: whether to save ``stem``.pdf as well.

    Raises:
        InputError: a file cannot be written.
    """
    undated = {"png": {"Software": None}} | ({"pdf": {"CreationDate": None}} if pdf else {})
    paths = []
    for kind, metadata in undated.items():
        data = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            figure.savefig(data, format=kind, metadata=metadata)
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        write_atomically(paths[-1], lambda file, data=data: file.write(data.getbuffer()))
    return paths


def write_csv(path: Path, header: Iterable[str], rows: Iterable[Iterable[Any]]) -> Path:
    """Writes a table, compressed if the name ends in ``.gz``, and returns its path.

    Raises:
        InputError: the file cannot be written.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    content = text.getvalue().encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # without a date
    write_atomically(path, lambda file: file.write(content))
    return path
