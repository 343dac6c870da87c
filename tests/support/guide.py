"""The examples of docs/guides/adding.md as files and commands."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"`([\w/.]+\.(?:py|yaml))`[^\n]*:\n\n```(?:python|yaml)\n(.*?)^```", re.M | re.S)


def section(title: str) -> str:
    """The text below a heading of the guide."""
    guide = (ROOT / "docs/guides/adding.md").read_text(encoding="utf-8")
    return guide.split(f"\n## {title}\n")[1].split("\n## ")[0]


def files(title: str) -> dict[str, str]:
    """Path -> content of every file that a section shows."""
    return dict(FILE.findall(section(title)))


def commands(text: str) -> list[list[str]]:
    """The words of every command in the ``sh`` blocks of a page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def write(title: str, folder: Path) -> None:
    """Writes the files of a section below a folder."""
    for name, content in files(title).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def run(words: list[str], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of the guide from a folder outside the repository."""
    path, words = (words[0], words[1:]) if "=" in words[0] else ("", words)
    key, _, own = path.partition("=")
    env = os.environ | ({key: os.pathsep.join([own, os.environ.get(key, "")])} if path else {})
    command = [sys.executable, str(ROOT / words[1]), *words[2:], *more]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
