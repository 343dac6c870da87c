"""Replaces generated text in a page, between ``<!-- name:start -->`` and ``<!-- name:end -->``."""

from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.lab.store.files import write_text


def replace_between_markers(path: Path, marker: str, text: str) -> None:
    """Replaces the text between two markers.

    Raises:
        InputError: the file does not exist, or does not have exactly one start before one end.
    """
    start, end = f"<!-- {marker}:start -->", f"<!-- {marker}:end -->"
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}; restore it with git") from error
    once = content.count(start) == content.count(end) == 1
    if not once or content.find(end) < content.find(start):
        raise InputError(f"{path}: expected one line {start} and after it one line {end}; add them")
    before, _, rest = content.partition(start)
    after = rest.partition(end)[2]
    write_text(path, f"{before}{start}\n{text.strip()}\n{end}{after}")


def pages_of(results: Path) -> list[Path]:
    """Lists the pages that show results: those in ``docs`` next to the folder, and two READMEs.

    If the folder is not called ``results``, only its own ``README.md`` is listed, since the pages
    next to it show other results.
    """
    whole = results.resolve().name == "results"
    pages = sorted((results.parent / "docs").rglob("*.md")) if whole else []
    readmes = [results / "README.md", *([results.parent / "README.md"] if whole else [])]
    return [*pages, *filter(Path.exists, readmes)]


def show_in_pages(results: Path, marker: str, text: str) -> list[Path]:
    """Replaces the text in every page that has the markers, and returns the pages.

    Raises:
        InputError: as ``replace_between_markers``.
    """
    pages = [page for page in pages_of(results) if page.parent != results.parent]
    shown = [page for page in pages if f"<!-- {marker}:start -->" in page.read_text("utf-8")]
    for page in shown:
        replace_between_markers(page, marker, text)
    return shown
