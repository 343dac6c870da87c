"""Folders of an earlier version in ``old_folders.zip``, which must load and continue for ever.

    python tests/golden/golden.py folders

- ``flight``: two seeds in training, with the last two checkpoints and the log.
- ``groups``: seed 0 has its result, seed 1 is set aside, and seeds 2 and 3 are in training.
- ``export``: an exported network, whose weights repeat a few numbers so that they pack well, with
  what ``evaluate.py`` measured of it.

The archive is written once: ``--write`` makes it only if it is missing, with the code of that day.
"""

import contextlib
import json
import os
import shlex
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden_described
import torch
from golden_runs import given, train, watched
from safetensors.torch import load_file, save_file
from small_runs import RUNS

ARCHIVE = Path(__file__).parent / "old_folders.zip"
SMALL = "logger=none device=cpu threads=1 data.num_nodes=60 data.features=8 data.num_val=20 "
SMALL += "data.train_per_class=4 backbone.hidden=4 trainer.epochs=6 trainer.eval_every=2"
NODES = [*shlex.split(SMALL), "aggregator@then=layernorm"]
STEPS = {"flight": [3], "groups": [4, 4]}  # of 6 epochs; checkpoints are of the second or third
EXPORT = "backbone.depth=1 task.aux_block=0 seeds=[0] logger=none device=cpu threads=1 "
EXPORT += "task.evaluation.ms_scales=[]"


def differences() -> list[str]:
    """Continues and evaluates the folders of the archive; returns what differs."""
    with _in_empty_folder():
        with zipfile.ZipFile(ARCHIVE) as archive:
            archive.extractall()
        exact = json.loads(Path("machine.json").read_text("utf-8")) == golden_described.machine()
        lines = [line for name in STEPS for line in _continued(name, exact)]
        expected = json.loads(Path("export-expected.json").read_text("utf-8"))
        return lines + golden_described.differences(_evaluated(), expected, exact, "export")


def written() -> list[str]:
    """Writes the archive if it is missing; returns what differs."""
    if not ARCHIVE.exists():
        with _in_empty_folder():
            _stop("flight", "seeds=[0,1]", 4)
            assert train([*_words("groups"), "seeds=[0]"]) == 0
            _stop("groups", "seeds=[1]", 3)
            _stop("groups", "seeds=[2,3]", 3)
            _export()
            Path("export-expected.json").write_text(json.dumps(_evaluated(), indent=1), "utf-8")
            Path("machine.json").write_text(json.dumps(golden_described.machine()), "utf-8")
            kept = [path for path in sorted(Path().rglob("*")) if _is_kept(path)]
            with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_LZMA) as archive:
                for path in kept:
                    archive.write(path)
    return differences()


def _continued(name: str, exact: bool) -> Iterator[str]:
    """Continues the seeds in training, then those set aside; compares with an undisturbed run."""
    asked = {"flight": ["seeds=[0,1]"], "groups": ["seeds=[0,2,3]", "seeds=[0,1,2,3]"]}[name]
    undisturbed = [*_words(name)[:-1], "paths.outputs=fresh"]
    if name == "groups":
        assert train([*undisturbed, "seeds=[0]"]) == 0
    for seeds, steps in zip(asked, STEPS[name], strict=True):
        with watched() as seen:
            code = train([*_words(name), seeds])
        if (code, seen.steps) != (0, steps):
            yield f"{name}, {seeds}: exit code {code} after {seen.steps} steps, expected {steps}"
        assert train([*undisturbed, seeds]) == 0
    [folder] = Path(name).glob("nodes-*")
    ours, fresh = (golden_described.described(Path(of, folder.name)) for of in (name, "fresh"))
    yield from golden_described.differences(ours, fresh, exact, name)


def _words(name: str) -> list[str]:
    method = "aggregator=centered" if name == "groups" else "aggregator=none"
    return [*NODES, method, f"paths.outputs={name}"]


def _stop(name: str, seeds: str, step: int) -> None:
    with watched(step):
        assert train([*_words(name), seeds, "checkpoint_seconds=0"]) != 0


def _export() -> None:
    """Trains and exports a network of one block, and replaces its numbers by repeating ones."""
    assert train([*RUNS["wsss"], *shlex.split(EXPORT), "paths.outputs=trained"]) == 0
    [run] = Path("trained").glob("wsss-*")
    assert given("scripts/export.py", ["--run", str(run), "--to", "export"]) == 0
    weights = load_file("export/model.safetensors")
    few = torch.linspace(-0.1, 0.1, 64)
    for key, value in weights.items():
        if value.is_floating_point():
            weights[key] = few.repeat(value.numel() // 64 + 1)[: value.numel()].view(value.shape)
    save_file(weights, "export/model.safetensors")


def _evaluated() -> dict[str, Any]:
    """Measures the exported network; the scenes are generated."""
    assert (code := given("scripts/evaluate.py", ["--run", "export", "--device", "cpu"])) == 0, code
    [path] = Path("export").glob("evaluation-*.json")
    return golden_described.numbers(json.loads(path.read_text("utf-8"))["seeds"])


def _is_kept(path: Path) -> bool:
    kept = path.parts[0] in (*STEPS, "export", "export-expected.json", "machine.json")
    return path.is_file() and kept and not path.name.startswith((".", "evaluation-"))


@contextlib.contextmanager
def _in_empty_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
