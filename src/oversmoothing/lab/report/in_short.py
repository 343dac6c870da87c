"""Reads the section "In short" of a paper's page: a verdict of one sentence, then the reasons."""

import re
from pathlib import Path

PAGES = {
    "Centered Self-Attention": "centered",
    "ContraNorm": "contranorm",
    "HEMNet": "hemnet",
    "External Attention": "external_attention",
}
SECTION = re.compile(r"^## In short\n(.*?)(?=^#|\Z)", re.M | re.S)
HIDDEN = re.compile(r"<!--.*?-->")
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def in_short(results: Path, paper: str) -> list[str]:
    """Returns the paragraphs of the section, without links and comments; none without a section.

    Args:
        results: a folder such as ``results``; pages are in ``docs/papers`` next to it.
        paper: short name of the paper, as in ``PAGES``; other papers have no page.
    """
    page = results.parent / "docs/papers" / f"{PAGES.get(paper, paper)}.md"
    found = SECTION.search(page.read_text("utf-8")) if page.exists() else None
    text = LINK.sub(r"\1", HIDDEN.sub("", found[1])).strip() if found else ""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph]


def bullets(results: Path, folder: str) -> str:
    """Returns a Markdown list of verdicts, each with a link to the page of its paper.

    Args:
        results: a folder such as ``results``.
        folder: of the pages, as a relative link.
    """
    texts = {paper: in_short(results, paper) for paper in PAGES}
    return "".join(
        f"- **[{paper}]({folder}/{PAGES[paper]}.md)**: {text[0]}\n"
        for paper, text in texts.items()
        if text
    )
