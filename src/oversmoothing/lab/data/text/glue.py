"""Reads the tasks of GLUE (Wang et al., ICLR 2019)."""

import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.lab.data.checksum import short_sha256
from oversmoothing.lab.data.text import hub, tsv
from oversmoothing.lab.data.text.glue_tasks import TASKS, Glue, Name
from oversmoothing.lab.data.text.text_set import OnError, Text, TextSet

SCORES = (0.0, 5.0)  # range of STS-B


def load(
    root: str = "data",
    folder: str = "glue",
    task: Name = "sst2",
    name: str = "sst2",
    vocabulary: str | None = "bert-base-uncased-vocab.txt",
    on_error: OnError = "stop",
) -> TextSet:
    """Reads the training and development sets of a task.

    They come from the TSV files of GLUE's archive or, if the task has no folder, from the Hugging
    Face hub.

    Args:
        root: folder with the data, only read.
        folder: folder in ``root`` with one folder per task (SST-2, …).
        task: name of the task.
        name: name of the data set.
        vocabulary: WordPiece vocabulary, a file in ``folder``; None: the hub's tokenizer of the
            backbone, which also replaces a missing file if the task comes from the hub.
        on_error: what to do at a broken line of the training file (QQP has some): stop, or skip it
            with a warning.

    Raises:
        InputError: a file or column is missing, a line is broken, or neither files nor hub are
            available.
    """
    glue, base = TASKS[task], Path(root) / folder
    source = base / glue.folder
    local = source.is_dir()
    read = _files(source, glue, on_error) if local else hub.read(task, glue, source)
    words = _vocabulary(base / vocabulary, local) if vocabulary else None
    texts = {f"{file}:{n}": text for file, lines in read.items() for n, text in lines.items()}
    ids = {file: tuple(f"{file}:{n}" for n in lines) for file, lines in read.items()}
    return TextSet(
        name=name,
        num_classes=len(glue.classes),
        metrics=glue.metrics,
        texts=texts,
        train=ids["train"],
        parts={part: ids[file] for part, file in glue.val.items()},
        vocabulary=words,
        checksum=_checksum(texts, words),
        on_error=on_error,
    )


def _vocabulary(path: Path, local: bool) -> Path | None:
    if path.is_file():
        return path
    if local:
        raise InputError(
            f"data.vocabulary: no file {path}; expected one token per line, as in the vocab.txt of "
            "bert-base-uncased; put it there, set paths.data, or null for the hub's tokenizer"
        )
    warnings.warn(f"no file {path}: the tokenizer comes from the Hugging Face hub", stacklevel=3)
    return None


def _files(folder: Path, glue: Glue, on_error: str) -> dict[str, dict[int, Text]]:
    """Returns the texts by file and line number."""
    found = {}
    for file in ("train", *glue.val.values()):
        path = folder / f"{file}.tsv"
        found[file] = dict(_read(path, glue, file == "train", on_error))
        if not found[file]:
            raise InputError(f"{path}: no sentence in it; download it again")
    return found


def _read(path: Path, glue: Glue, train: bool, on_error: str) -> Iterator[tuple[int, Text]]:
    """Yields the line number and the text of every line."""
    needed = [column for column in (glue.first, glue.second, glue.label) if column]
    broken = []
    for number, row in tsv.rows(path, needed, glue.header):
        try:
            if isinstance(row, InputError):
                raise row
            second = row[glue.second] if glue.second else None
            label = _label(row[glue.label], glue.classes, f"{path}:{number}")
            yield number, Text(row[glue.first], second, label)
        except InputError as error:
            if not train:
                raise
            if on_error == "stop":
                raise InputError(f"{error}, or skip such lines with data.on_error=skip") from error
            broken.append(str(error))
    if broken:
        warnings.warn(f"{broken[0]}; skipped lines: {len(broken)}", stacklevel=3)


def _label(text: str, classes: tuple[str, ...], where: str) -> float:
    if classes:
        if text not in classes:
            known = ", ".join(classes)
            raise InputError(f"{where}: label {text!r}, expected one of {known}; download it again")
        return classes.index(text)
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not SCORES[0] <= score <= SCORES[1]:
        raise InputError(f"{where}: score {text!r}, expected a number 0 to 5; download it again")
    return score


def _checksum(texts: dict[str, Text], vocabulary: Path | None) -> str:
    content = json.dumps([[id, t.first, t.second, t.label] for id, t in texts.items()]).encode()
    words = vocabulary.read_bytes() if vocabulary else b""
    return short_sha256(content + words)
