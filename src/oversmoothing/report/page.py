"""One HTML page that needs nothing but itself: style and images inside, no request to anywhere."""

import base64
import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.report import compared
from oversmoothing.report.grid import Block, Entry, layout
from oversmoothing.report.page_style import STYLE
from oversmoothing.report.remarks import counts, legend, notes
from oversmoothing.store.files import write_atomically


@dataclass(frozen=True)
class Section:
    """A heading with whatever of these it has, in this order.

    Args:
        text: paragraphs, set apart by empty lines.
        command: that makes it again.
        entries: cells of a table of published numbers.
        rows: any other table; the first row is its head.
        figures: image files.
    """

    title: str
    text: str = ""
    command: str = ""
    entries: Sequence[Entry] = ()
    rows: Sequence[Sequence[str]] = ()
    figures: Sequence[Path] = ()


def write_page(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Writes the page.

    Raises:
        InputError: a figure that is missing or no image, or a page that cannot be written.
    """
    content = page(title, sections).encode()
    write_atomically(path, lambda file: file.write(content))


def page(title: str, sections: Sequence[Section]) -> str:
    """The page as text; all that is given is shown as it is, never read as HTML."""
    links = (f'<li><a href="#s{i}">{escape(s.title)}</a></li>' for i, s in enumerate(sections))
    body = "\n".join(_section(f"s{i}", section) for i, section in enumerate(sections))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n<nav><ol>{''.join(links)}</ol></nav>\n"
        f"{body}\n</main>\n</body>\n</html>\n"
    )


def _section(name: str, section: Section) -> str:
    parts = [f'<section id="{name}">', f"<h2>{escape(section.title)}</h2>"]
    parts += [
        f"<p>{escape(text.strip())}</p>" for text in section.text.split("\n\n") if text.strip()
    ]
    if section.command:
        parts.append(f"<pre><code>{escape(section.command)}</code></pre>")
    if section.entries:
        parts.append(_published(section.entries))
    if section.rows:
        parts.append(_plain(section.rows))
    parts += [_figure(path) for path in section.figures]
    return "\n".join([*parts, "</section>"])


def _published(entries: Sequence[Entry]) -> str:
    about = entries[0].cell.about
    caption = f"{about.title} ({about.unit}; {about.source})"
    rows = compared.rows(entries)
    remarks = "".join(f"<li>{escape(note)}</li>" for note in notes(entries))
    return "\n".join(
        [
            f'<p class="caption">{escape(caption)}</p>',
            f"<p><strong>{escape(counts(entries))}</strong> {escape(legend(entries))}</p>",
            *(_block(block) for block in layout(entries)),
            f'<ul class="notes">{remarks}</ul>' if remarks else "",
            f"<p>{escape(compared.HEAD)}</p>{_plain(rows)}" if rows else "",
            _every_cell(entries),
        ]
    )


def _block(block: Block) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in [block.name, *block.columns])
    rows = "\n".join(
        f'<tr><th scope="row">{escape(label)}</th>{"".join(map(_cell, row))}</tr>'
        for label, row in block.rows.items()
    )
    return _table(head, rows)


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return "<td></td>"
    ours = f"<b>{escape(entry.ours)}</b>" if entry.best else escape(entry.ours)
    cell = f"{ours}<small>{escape(f'{entry.printed} {entry.mark}'.strip())}</small>"
    reason = entry.cell.reason if entry.measured is None else None
    hint = escape("; ".join(filter(None, [*entry.details[3:], reason])), quote=True)
    return f'<td class="{str(entry.verdict).replace(" ", "-")}" title="{hint}">{cell}</td>'


def _every_cell(entries: Sequence[Entry]) -> str:
    head = ["", "", "", "n", "measured", "published", "difference", "verdict", "run"]
    table = _plain([head, *(entry.details for entry in entries)])
    return f"<details><summary>Every cell</summary>{table}</details>"


def _plain(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(str(text))}</th>" for text in rows[0])
    lines = ("".join(f"<td>{escape(str(text))}</td>" for text in row) for row in rows[1:])
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return _table(head, body, "plain")


def _table(head: str, body: str, kind: str = "grid") -> str:
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _figure(path: Path) -> str:
    kind, _ = mimetypes.guess_type(path.name)
    if kind not in ("image/png", "image/jpeg", "image/svg+xml"):
        raise InputError(f"{path}: expected a PNG, JPEG or SVG image to put into the page")
    try:
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); draw the figure first"
        ) from error
    name = escape(path.stem.replace("_", " "))
    return (
        f'<figure><img src="data:{kind};base64,{data}" alt="{name}">'
        f"<figcaption>{name}</figcaption></figure>"
    )
