"""Writes one self-contained HTML page, with style and images inside and without requests."""

import base64
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from oversmoothing.lab.report import claims as words
from oversmoothing.lab.report import publish
from oversmoothing.lab.report.verdict import Entry, Verdict, layout
from oversmoothing.lab.store.files import write_text

ORDER = (
    Verdict.WITHIN,
    Verdict.OFF,
    Verdict.CONTRADICTED,
    Verdict.MISSING,
    Verdict.NOT_RUN,
)

PAGES = {
    "Centered Self-Attention": "centered",
    "ContraNorm": "contranorm",
    "HEMNet": "hemnet",
    "External Attention": "external_attention",
}
SECTION = re.compile(r"^## In short\n(.*?)(?=^#|\Z)", re.M | re.S)
LINK = re.compile(r" \(\[claim\]\([^)]+\)\)|\[([^]]+)\]\([^)]+\)")


@dataclass(frozen=True)
class Paper:
    """The published numbers of a paper by verdict.

    Args:
        name: short name of the paper.
        counts: number of cells by verdict.
        claims: number of claims in words by verdict.
        in_short: paragraphs of its page: a verdict of one sentence, then the reasons.
    """

    name: str
    counts: Counter[Verdict]
    claims: Counter[str] = field(default_factory=Counter)
    in_short: Sequence[str] = ()

    @property
    def parts(self) -> list[tuple[Verdict, int]]:
        """Verdicts that occur, with their number of cells, from the best to the least known."""
        return [(kind, self.counts[kind]) for kind in ORDER if self.counts[kind]]

    @property
    def claim_parts(self) -> list[tuple[str, int]]:
        """Verdicts of the claims in words, with the number of each."""
        return [(kind, self.claims[kind]) for kind in words.ORDER if self.claims[kind]]

    @property
    def claim_line(self) -> str:
        """``38 claims in words; holds: 4, holds in part: 11, …``"""
        parts = [f"{kind}: {number}" for kind, number in self.claim_parts]
        return f"{self.claims.total()} claims in words; {', '.join(parts)}."

    @property
    def line(self) -> str:
        """``92 of 175 published numbers measured: 78 agree, 14 differ.``"""
        agree, differ, contradicted = (self.counts[kind] for kind in ORDER[:3])
        measured, total = agree + differ + contradicted, self.counts.total()
        first = f"{measured} of {total} published numbers measured"
        if not measured:
            return f"None of {total} published numbers is measured by a training run."
        others = [f"{differ} differ"] * bool(differ)
        others += [f"{contradicted} against the published comparison"] * bool(contradicted)
        return f"{first}: {', '.join([f'{agree} agree', *others])}."


@dataclass(frozen=True)
class Section:
    """A heading and what follows it, in the order of the arguments; empty ones are left out.

    Args:
        text: paragraphs with empty lines between them.
        command: that makes the results.
        entries: cells of a table in ``results/expected``.
        rows: any other table; the first row is its head.
        figures: PNG files.
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
    path: Path,
    title: str,
    sections: Sequence[Section],
    papers: Sequence[Paper] = (),
    text: str = "",
    figures: Sequence[Path] = (),
) -> None:
    """Writes the page.

    Args:
        papers: shown before the sections, each with a line and a bar.
        text: shown before them; paragraphs with empty lines between them.
        figures: PNG files, shown first.

    Raises:
        InputError: the page cannot be written.
    """
    write_text(path, page(title, sections, papers, text, figures))


def page(
    title: str,
    sections: Sequence[Section],
    papers: Sequence[Paper] = (),
    text: str = "",
    figures: Sequence[Path] = (),
) -> str:
    """Returns the page. Texts are never read as HTML; what stands between backticks is code."""
    template = resources.files("oversmoothing.lab.report").joinpath("page.html").read_text("utf-8")
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters["code"] = _code
    names = {"words": words, "publish": publish, "layout": layout, "hint": _hint, "image": _image}
    return environment.from_string(template, names).render(
        title=title, sections=sections, papers=papers, text=text, figures=figures
    )


def _code(text: str) -> Markup:
    """Escaped text with what stands between backticks as code, and no break before a %."""
    shown = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", shown))


def _hint(entry: Entry) -> str:
    """Returns the tooltip of a cell."""
    reason = entry.cell.reason if entry.measured is None else None
    return "; ".join(filter(None, [*entry.details[3:], reason]))


def _image(path: Path) -> str:
    """A PNG file as the URL that holds it."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def papers(entries: Iterable[Entry], claims: Sequence[words.Entry] = ()) -> list[Paper]:
    """Counts the published numbers of every paper, and its claims in words.

    Other readings of a paper, controls, and numbers that are not at hand do not count.
    """
    found: dict[str, Counter[Verdict]] = {}
    for entry in entries:
        cell = entry.cell
        if cell.value is not None and not cell.reading and not cell.control:
            name = cell.about.source.partition(",")[0]
            found.setdefault(name, Counter())[_verdict(entry)] += 1
    said: dict[str, Counter[str]] = {}
    for claim in claims:
        said.setdefault(claim["paper"], Counter())[claim["verdict"]] += 1
    return [Paper(name, counts, said.get(name, Counter())) for name, counts in found.items()]


def _verdict(entry: Entry) -> Verdict:
    """The verdict of a cell. One that waits for a search needs no other data to be measured."""
    waits = entry.cell.about.tuned and entry.verdict is Verdict.NOT_RUN
    return Verdict.MISSING if waits else entry.verdict


def in_short(results: Path, paper: str) -> list[str]:
    """Returns the paragraphs of the section, without links and emphasis; none without a section.

    Args:
        results: a folder such as ``results``; pages are in ``docs/papers`` next to it.
        paper: short name of the paper, as in ``PAGES``; other papers have no page.
    """
    page = results.parent / "docs/papers" / f"{PAGES.get(paper, paper)}.md"
    found = SECTION.search(page.read_text("utf-8")) if page.exists() else None
    text = LINK.sub(r"\1", found[1]).replace("*", "").strip() if found else ""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph]
