"""Collects what the site shows: `python docs/sources.py FOLDER` (see `make docs`).

Pages are plain Markdown, and their links lead to files of the repository, as on GitHub. The folder
gets a copy of the pages, and below ``repo/`` of every file that a page links to; sources and
folders become pages. The menu is made of the lists of links in docs/index.md.
"""

import os
import re
import sys
import tomllib
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")
ENTRY = re.compile(r"^- \[([^]]+)\]\(([^)#]+)\)", re.M)
LANGUAGES = {".py": "python", ".yaml": "yaml"}
UNLISTED = "---\norphan: true\n---\n\n"
SHOWN_FILE = "---\norphan: true\nnosearch: true\n---\n\n"


def collect(folder: Path) -> None:
    """Writes the pages, everything that they link to, and what the added pages link to."""
    waiting = sorted(DOCS.rglob("*.md"))
    seen = set(waiting)
    while waiting:
        source = waiting.pop()
        place = folder / uri(source)
        if place.suffix != ".md":
            _write(place, source.read_bytes())
            continue
        text, targets = page(source)
        _write(place, text.encode())
        waiting += [target for target in targets if target not in seen]
        seen.update(targets)
    expected = {folder / uri(source) for source in seen}
    for old in [path for path in folder.rglob("*") if path.is_file()]:
        if old not in expected:
            old.unlink()


def page(source: Path) -> tuple[str, list[Path]]:
    """The text of a page on the site, and the files that it links to."""
    targets = []

    def moved(link: re.Match[str]) -> str:
        target = (source if source.is_dir() else source.parent) / link[1]
        if not target.exists():
            return link[1]  # Sphinx reports it
        targets.append(target.resolve())
        return os.path.relpath(uri(targets[-1]), PurePosixPath(uri(source)).parent)

    text = LINK.sub(moved, _text(source))
    text = re.sub(r'<a id="(\w+)"></a>', r"[]{#\1}", text)
    return (text + colab() + menu(text) if source == DOCS / "index.md" else text), targets


def colab() -> str:
    """A badge that opens the notebook, if pyproject.toml names a repository of GitHub."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository = project.get("urls", {}).get("Repository", "").removesuffix(".git")
    if "github.com/" not in repository:
        return ""
    site = "https://colab.research.google.com"
    notebook = f"github/{repository.split('github.com/')[1]}/blob/main/examples/tour.ipynb"
    return f"\n[![Open in Colab]({site}/assets/colab-badge.svg)]({site}/{notebook})\n"


def uri(path: Path) -> str:
    """Where a file or folder of the repository lies on the site."""
    if path == ROOT / "README.md":
        return "index.md"
    if path.is_relative_to(DOCS) and path.suffix == ".md":
        return path.relative_to(DOCS).as_posix()
    shown = path.is_dir() or path.suffix in LANGUAGES
    return f"repo/{path.relative_to(ROOT).as_posix()}" + (".md" if shown else "")


def menu(index: str) -> str:
    """The lists of links below the headings of the start page."""
    text = ""
    for section in re.split(r"^## ", index, flags=re.M)[1:]:
        entries = [f"{title} <{link}>" for title, link in ENTRY.findall(section)]
        if entries:
            caption = section.partition("\n")[0]
            lines = ["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```"]
            text += "\n" + "\n".join(lines) + "\n"
    return text


def _text(source: Path) -> str:
    """The Markdown of a page; a source is shown, a folder is listed, a table gets a title."""
    title = f"# {source.relative_to(ROOT).as_posix()}\n\n"
    if source.is_dir():
        names = (path.name for path in sorted(source.iterdir()) if path.suffix != ".csv")
        return SHOWN_FILE + title + "\n".join(f"- [{name}]({name})" for name in names) + "\n"
    text = source.read_text(encoding="utf-8")
    if language := LANGUAGES.get(source.suffix):
        return f"{SHOWN_FILE}{title}````{language}\n{text}\n````\n"
    if source.is_relative_to(DOCS):
        return text
    return UNLISTED + ("" if text.startswith("# ") else title) + text


def _write(place: Path, content: bytes) -> None:
    """Leaves a file that has not changed, so that Sphinx reads only what has."""
    if not place.exists() or place.read_bytes() != content:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


if __name__ == "__main__":
    collect(Path(sys.argv[1]))
