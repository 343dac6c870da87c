"""Writes one self-contained HTML page, with style and images inside and without requests."""

import base64
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from oversmoothing.errors import InputError
from oversmoothing.lab.report import claims as words
from oversmoothing.lab.report import grid, publish, remarks
from oversmoothing.lab.report.grid import Entry
from oversmoothing.lab.report.overview import Paper
from oversmoothing.lab.store.files import write_text


@dataclass(frozen=True)
class Section:
    """A heading and what follows it, in the order of the arguments; empty ones are left out.

    Args:
        text: paragraphs with empty lines between them.
        command: that makes the results.
        entries: cells of a table in ``results/expected``.
        rows: any other table; the first row is its head.
        figures: PNG, JPEG or SVG files.
        claims: entries of ``claims.json`` by paper, shown before all others.
    """

    title: str
    text: str = ""
    command: str = ""
    entries: Sequence[Entry] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[Path] = ()
    claims: Sequence[words.Entry] = ()


def write_page(
    path: Path, title: str, sections: Sequence[Section], papers: Sequence[Paper] = ()
) -> None:
    """Writes the page.

    Args:
        papers: shown first, each with a line and a bar.

    Raises:
        InputError: a figure that is missing or no image, or a page that cannot be written.
    """
    write_text(path, page(title, sections, papers))


def page(title: str, sections: Sequence[Section], papers: Sequence[Paper] = ()) -> str:
    """Returns the page. Texts are never read as HTML; what stands between backticks is code."""
    template = resources.files("oversmoothing.lab.report").joinpath("page.html").read_text("utf-8")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters["code"] = _code
    modules = {"words": words, "grid": grid, "publish": publish, "remarks": remarks}
    names = modules | {"hint": _hint, "image": _image}
    return environment.from_string(template, names).render(
        title=title, sections=sections, papers=papers
    )


def _code(text: str) -> Markup:
    """Escaped text with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _hint(entry: Entry) -> str:
    """Returns the tooltip of a cell."""
    reason = entry.cell.reason if entry.measured is None else None
    return "; ".join(filter(None, [*entry.details[3:], reason]))


def _image(path: Path) -> str:
    """An image file as the URL that holds it."""
    kind, _ = mimetypes.guess_type(path.name)
    if kind not in ("image/png", "image/jpeg", "image/svg+xml"):
        raise InputError(f"{path}: expected a PNG, JPEG or SVG image to put into the page")
    try:
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    except OSError as error:
        why = f"cannot be read ({error.strerror}); draw the figure first"
        raise InputError(f"{path}: {why}") from error
