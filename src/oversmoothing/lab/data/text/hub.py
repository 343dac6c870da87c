"""Reads the tasks of GLUE from the Hugging Face hub."""

from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError, described, install
from oversmoothing.lab.data.text.glue_tasks import Glue
from oversmoothing.lab.data.text.text_set import Text
from oversmoothing.lab.store.files import FORBIDDEN, offline

REPOSITORY = "nyu-mll/glue"


def read(task: str, glue: Glue, folder: Path) -> dict[str, dict[int, Text]]:
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

        return load_dataset(REPOSITORY, task)
    except ModuleNotFoundError as error:
        reason = f"it needs {error.name}: {install('text')}"
    except Exception as error:  # the hub, the HTTP library and pyarrow may raise any error
        reason = str(error) if isinstance(error, InputError) else described(error)
    raise InputError(
        f"{folder}: no such folder, and {REPOSITORY} cannot be loaded from the Hugging Face hub "
        f"({reason}); put GLUE's TSV files there, or set paths.data, data.folder or data.task"
    )
