"""The tasks of GLUE from the TSV files of its archive (Wang et al., ICLR 2019)."""

import hashlib
import json
import math
import warnings
from collections.abc import Iterator
from pathlib import Path

from oversmoothing.data.text import tsv
from oversmoothing.data.text.glue_tasks import TASKS, Glue, Name
from oversmoothing.data.text.text_set import OnError, Text, TextSet
from oversmoothing.errors import InputError

SCORES = (0.0, 5.0)  # of STS-B


def load(
    root: str = "data",
    folder: str = "glue",
    task: Name = "sst2",
    name: str = "sst2",
    vocabulary: str | None = "bert-base-uncased-vocab.txt",
    on_error: OnError = "stop",
) -> TextSet:
    """Reads the training and development files of a task.

    Args:
        root: folder with the data, only read.
        folder: below it, with a folder for each task (SST-2, …).
        task: of GLUE.
        name: of the data set.
        vocabulary: of WordPiece, a file in ``folder``; null: the tokenizer that the hub has under
            the backbone's name.
        on_error: at a broken line of the training file (QQP's has some): stop, or skip it with a
            warning.

    Raises:
        InputError: no such task or file, a column that is missing, a broken line.
    """
    if task not in TASKS:
        raise InputError(f"data.task: expected one of {', '.join(TASKS)}, got {task!r}")
    glue, base = TASKS[task], Path(root) / folder
    words = base / vocabulary if vocabulary else None
    if words and not words.is_file():
        raise InputError(
            f"data.vocabulary: no file {words}; expected one token a line, as in the vocab.txt of "
            "bert-base-uncased; put it there, set paths.data, or null for the hub's tokenizer"
        )
    texts: dict[str, Text] = {}
    parts: dict[str, tuple[str, ...]] = {}
    for part, file in {"train": "train", **glue.val}.items():
        read = _read(base / glue.folder / f"{file}.tsv", glue, part == "train", on_error)
        found = {f"{file}:{number}": text for number, text in read}
        if not found:
            raise InputError(f"{base / glue.folder / file}.tsv: no sentence in it; fetch it again")
        texts |= found
        parts[part] = tuple(found)
    return TextSet(
        name=name,
        num_classes=len(glue.classes),
        metrics=glue.metrics,
        texts=texts,
        train=parts.pop("train"),
        parts=parts,
        vocabulary=words,
        checksum=_checksum(texts, words),
        on_error=on_error,
    )


def _read(path: Path, glue: Glue, train: bool, on_error: str) -> Iterator[tuple[int, Text]]:
    """Texts by the number of their line."""
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
                raise InputError(f"{error}, or skip such with data.on_error=skip") from error
            broken.append(str(error))
    if broken:
        warnings.warn(f"{broken[0]}; lines that were skipped: {len(broken)}", stacklevel=3)


def _label(text: str, classes: tuple[str, ...], where: str) -> float:
    if classes:
        if text not in classes:
            known = ", ".join(classes)
            raise InputError(f"{where}: label {text!r}, expected one of {known}; fetch it again")
        return classes.index(text)
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not SCORES[0] <= score <= SCORES[1]:
        raise InputError(f"{where}: score {text!r}, expected a number 0 to 5; fetch it again")
    return score


def _checksum(texts: dict[str, Text], vocabulary: Path | None) -> str:
    content = json.dumps([[id, t.first, t.second, t.label] for id, t in texts.items()])
    digest = hashlib.sha256(content.encode())
    if vocabulary:
        digest.update(vocabulary.read_bytes())
    return digest.hexdigest()[:12]
