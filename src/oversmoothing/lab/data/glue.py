"""The tasks of GLUE (Wang et al., ICLR 2019), read from TSV files or by the package datasets."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from oversmoothing.errors import InputError, described, install
from oversmoothing.lab.store.files import FORBIDDEN, offline, short_sha256

Name = Literal["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli"]

YES_NO = ("0", "1")
ENTAILED = ("entailment", "not_entailment")


@dataclass(frozen=True)
class Glue:
    """One task of GLUE (Wang et al., ICLR 2019), described by its TSV files.

    Args:
        folder: its name in GLUE's archive.
        first: column of the first sentence.
        second: column of the second sentence; None: there is only one sentence.
        label: column of the label.
        metrics: names in ``tasks.glue.metrics``; their mean is the task's score.
        classes: labels in the order of the class numbers; empty: the label is a score from 0 to 5.
        header: names of the columns, for files whose first line does not give them.
        val: maps each evaluation part to its file.
    """

    folder: str
    first: str
    second: str | None
    label: str
    metrics: tuple[str, ...] = ("accuracy",)
    classes: tuple[str, ...] = YES_NO
    header: tuple[str, ...] = ()
    val: Mapping[str, str] = field(default_factory=lambda: {"val": "dev"})


TASKS: dict[str, Glue] = {
    "cola": Glue(
        *("CoLA", "sentence", None, "acceptable"),
        metrics=("matthews",),
        header=("source", "acceptable", "annotation", "sentence"),
    ),
    "mnli": Glue(
        *("MNLI", "sentence1", "sentence2", "gold_label"),
        classes=("entailment", "neutral", "contradiction"),
        val={"val": "dev_matched", "val_mismatched": "dev_mismatched"},
    ),
    "mrpc": Glue("MRPC", "#1 String", "#2 String", "Quality", metrics=("accuracy", "f1")),
    "qnli": Glue("QNLI", "question", "sentence", "label", classes=ENTAILED),
    "qqp": Glue("QQP", "question1", "question2", "is_duplicate", metrics=("accuracy", "f1")),
    "rte": Glue("RTE", "sentence1", "sentence2", "label", classes=ENTAILED),
    "sst2": Glue("SST-2", "sentence", None, "label"),
    "stsb": Glue(
        *("STS-B", "sentence1", "sentence2", "score"), metrics=("pearson", "spearman"), classes=()
    ),
    "wnli": Glue("WNLI", "sentence1", "sentence2", "label"),
}


@dataclass(frozen=True)
class Text:
    """One or two sentences with a class (0, 1, …) or a score."""

    first: str
    second: str | None
    label: float


@dataclass(frozen=True, eq=False)
class TextSet:
    """A data set of texts, split into parts.

    Args:
        name: of the data set.
        num_classes: K; 0: labels are scores.
        metrics: names of the metrics for predictions.
        texts: id -> text.
        train: ids of the training texts.
        parts: ids of the texts of each evaluation part, among them ``val``.
        vocabulary: file with one WordPiece token per line; None: the hub's tokenizer is used.
        checksum: short hash of texts, labels and vocabulary.
    """

    name: str
    num_classes: int
    metrics: tuple[str, ...]
    texts: Mapping[str, Text]
    train: tuple[str, ...]
    parts: Mapping[str, tuple[str, ...]]
    vocabulary: Path | None
    checksum: str

    @property
    def val(self) -> tuple[str, ...]:
        """Ids of the validation texts."""
        return self.parts["val"]


REPOSITORY = "nyu-mll/glue"
SCORES = (0.0, 5.0)  # range of STS-B


def load(
    root: str = "data",
    folder: str = "glue",
    task: Name = "sst2",
    name: str = "sst2",
    vocabulary: str | None = "bert-base-uncased-vocab.txt",
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

    Broken lines of the training file, which QQP has, are left out with a warning.

    Raises:
        InputError: a file or column is missing, a line of the development set is broken, or
            neither files nor hub are available.
    """
    glue, base = TASKS[task], Path(root) / folder
    source = base / glue.folder
    local = source.is_dir()
    read = _files(source, glue) if local else from_hub(task, glue, source)
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
    )


def _vocabulary(path: Path, local: bool) -> Path | None:
    if path.is_file():
        return path
    if local:
        raise InputError(
            f"data.vocabulary: no file {path}; expected one token per line, as in the vocab.txt of "
            "bert-base-uncased; put it there, set paths.data or DATA_ROOT, or null for the hub's "
            "tokenizer"
        )
    warnings.warn(f"no file {path}: the tokenizer comes from the Hugging Face hub", stacklevel=3)
    return None


def _files(folder: Path, glue: Glue) -> dict[str, dict[int, Text]]:
    """Returns the texts by file and line number."""
    found = {}
    for file in ("train", *glue.val.values()):
        path = folder / f"{file}.tsv"
        found[file] = dict(_read(path, glue, file == "train"))
        if not found[file]:
            raise InputError(f"{path}: no sentence in it; download it again")
    return found


def _read(path: Path, glue: Glue, train: bool) -> Iterator[tuple[int, Text]]:
    """Yields the line number, from 1, and the text of every line."""
    lines = _lines(path)
    columns, first = (list(glue.header), 1) if glue.header else (lines[0].split("\t"), 2)
    needed = [column for column in (glue.first, glue.second, glue.label) if column]
    if absent := [column for column in needed if column not in columns]:
        raise InputError(
            f"{path}: no column {absent[0]!r}; expected {', '.join(needed)} among "
            f"{', '.join(columns)}; take the file as GLUE's archive has it"
        )
    broken = []
    for number, line in enumerate(lines[first - 1 :], start=first):
        try:
            yield number, _text(line.split("\t"), columns, glue, f"{path}:{number}")
        except InputError as error:
            if not train:
                raise
            broken.append(str(error))
    if broken:
        warnings.warn(f"{broken[0]}; skipped lines: {len(broken)}", stacklevel=3)


def _text(fields: list[str], columns: list[str], glue: Glue, where: str) -> Text:
    if len(fields) != len(columns):
        raise InputError(f"{where}: expected {len(columns)} fields, got {len(fields)}")
    row = dict(zip(columns, fields))
    second = row[glue.second] if glue.second else None
    return Text(row[glue.first], second, _label(row[glue.label], glue.classes, where))


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


def from_hub(task: str, glue: Glue, folder: Path) -> dict[str, dict[int, Text]]:
    """Downloads a task with ``datasets``, or takes it from the cache of ``datasets``.

    Args:
        task: name of the task.
        glue: its description.
        folder: where the TSV files were expected, for the error message.

    Returns:
        The texts of each TSV file (``train``, ``dev``, …) by line number. They are those of the
        files, except that scores have single precision.

    Raises:
        InputError: ``OVERSMOOTHING_OFFLINE`` is 1, ``datasets`` is missing, or the download fails.
    """
    splits = _download(task, folder)
    names = {file: file.replace("dev", "validation") for file in ("train", *glue.val.values())}
    first = 1 if glue.header else 2
    return {file: dict(enumerate(_texts(splits[s]), first)) for file, s in names.items()}


def _texts(split: Any) -> list[Text]:
    """Returns the texts of a split, whose columns are one or two sentences, label and index."""
    columns = split.to_dict()
    labels = columns.pop("label")
    del columns["idx"]
    first, *second = columns.values()
    return [Text(*row) for row in zip(first, *(second or [[None] * len(first)]), labels)]


def _download(task: str, folder: Path) -> Any:
    try:
        if offline():
            raise InputError(FORBIDDEN)
        from datasets import load_dataset  # optional, and slow to import

        _require_hub()
        return load_dataset(REPOSITORY, task)
    except ModuleNotFoundError as error:
        reason = f"it needs {error.name}: {install('text')}"
    except Exception as error:  # the hub, the HTTP library and pyarrow may raise any error
        reason = str(error) if isinstance(error, InputError) else described(error)
    raise InputError(
        f"{folder}: no such folder, and {REPOSITORY} cannot be loaded from the Hugging Face hub "
        f"({reason}); put GLUE's TSV files there (docs/guides/data.md, section Text, says where to "
        "get them), or set paths.data or DATA_ROOT, data.folder or data.task; for a copy in the "
        "cache of datasets, set HF_HUB_OFFLINE=1"
    )


def _require_hub() -> None:
    """Asks the hub once; ``load_dataset`` would try for half a minute, with a line for each try."""
    import huggingface_hub as hub

    if not hub.constants.HF_HUB_OFFLINE:
        hub.get_hf_file_metadata(hub.hf_hub_url(REPOSITORY, "README.md", repo_type="dataset"))
