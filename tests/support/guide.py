"""The commands of docs/guides/adding.md, and the parts that they use."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


def run(words: list[str], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of the guide from a folder outside the repository."""
    path, words = (words[0], words[1:]) if "=" in words[0] else ("", words)
    key, _, first = path.partition("=")
    env = os.environ | ({key: os.pathsep.join([first, os.environ.get(key, "")])} if path else {})
    own = ["-m", *words] if words[0] == "oversmoothing" else [str(ROOT / words[1]), *words[2:]]
    command = [sys.executable, *own, *more]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def errors(done: subprocess.CompletedProcess[str]) -> str:
    """What a command printed to stderr besides the progress of trainings."""
    return PROGRESS.sub("", done.stderr)
