"""The commands of docs/guides/adding.md, and the parts that they use."""

import os
import re
import shlex
import shutil
from pathlib import Path

from processes import ROOT, Ended, command

PARTS = ROOT / "examples/parts"
PROGRESS = re.compile(r"^\S+/s\S*: .* of \d+.*\n", re.M)


def section(title: str) -> str:
    """The text below a heading of the guide."""
    guide = (ROOT / "docs/guides/adding.md").read_text(encoding="utf-8")
    return guide.split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(text: str) -> list[list[str]]:
    """The words of every command in the ``sh`` blocks of a page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def parts(folder: Path) -> Path:
    """Copies the parts to my_parts, as the guide says."""
    return Path(shutil.copytree(PARTS, folder / "my_parts"))


def run(words: list[str], folder: Path, *more: str) -> Ended:
    """Runs a command of the guide from a folder outside the repository."""
    path, words = (words[0], words[1:]) if "=" in words[0] else ("PYTHONPATH=", words)
    key, _, first = path.partition("=")
    own = words if words[0] == "oversmoothing" else words[1:]  # without python
    paths = os.pathsep.join([first, os.environ.get(key, "")])
    return command([*own, *more], folder, **{key: paths}).end(300)


def errors(text: str) -> str:
    """What a command printed to stderr besides the progress of trainings."""
    return PROGRESS.sub("", text)
