"""Reads the section "In short" from the pages of papers."""

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


def in_short(results: Path, paper: str) -> str:
    """Returns the section as one paragraph without links; empty if there is none.

    Args:
        results: a folder such as ``results``; pages are in ``docs/papers`` next to it.
        paper: short name of the paper, as in ``PAGES``; other papers have no page.
    """
    page = results.parent / "docs/papers" / f"{PAGES.get(paper, paper)}.md"
    found = SECTION.search(page.read_text("utf-8")) if page.exists() else None
    return " ".join(LINK.sub(r"\1", HIDDEN.sub("", found[1])).split()) if found else ""


def bullets(results: Path, folder: str) -> str:
    """Returns a Markdown list of all papers that have the section, each with a link to its page.

    Args:
        results: a folder such as ``results``.
        folder: of the pages, as a relative link.
    """
    texts = {paper: in_short(results, paper) for paper in PAGES}
    return "".join(
        f"- **[{paper}]({folder}/{PAGES[paper]}.md)**: {text}\n"
        for paper, text in texts.items()
        if text
    )
