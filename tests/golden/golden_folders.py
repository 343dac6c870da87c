"""A trained network of an earlier version in ``old_folders.zip``, which must load for ever.

    python tests/golden/golden.py folders

Its weights, safetensors in the folder ``export``, repeat a few numbers so that they pack well;
``export-expected.json`` has what ``evaluate.py`` measured of it.
"""

import contextlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_described
import torch
from golden_runs import given
from safetensors.torch import load_file

ARCHIVE = Path(__file__).parent / "old_folders.zip"


def differences() -> list[str]:
    """Evaluates the network of the archive; returns what differs."""
    with _in_empty_folder():
        with zipfile.ZipFile(ARCHIVE) as archive:
            archive.extractall()
        exact = json.loads(Path("machine.json").read_text("utf-8")) == golden_described.machine()
        expected = json.loads(Path("export-expected.json").read_text("utf-8"))
        found = _evaluated()
        for seed in (*found.values(), *expected.values()):
            del seed["weights_sha256"]  # of a file of another kind
        return golden_described.differences(found, expected, exact, "export")


def _evaluated() -> dict[str, Any]:
    """Measures the trained network; the scenes are generated."""
    torch.save(load_file("export/model.safetensors"), "export/weights-seed0.pt")
    assert (
        code := given("oversmoothing", ["evaluate", "--run", "export", "--device", "cpu"])
    ) == 0, code
    [path] = Path("export").glob("evaluation-*.json")
    return golden_described.numbers(json.loads(path.read_text("utf-8"))["seeds"])


@contextlib.contextmanager
def _in_empty_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
