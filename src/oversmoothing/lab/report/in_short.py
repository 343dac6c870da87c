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
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def in_short(results: Path, paper: str) -> list[str]:
    """Returns the paragraphs of the section, without links; none without a section.

    Args:
        results: a folder such as ``results``; pages are in ``docs/papers`` next to it.
        paper: short name of the paper, as in ``PAGES``; other papers have no page.
    """
    page = results.parent / "docs/papers" / f"{PAGES.get(paper, paper)}.md"
    found = SECTION.search(page.read_text("utf-8")) if page.exists() else None
    text = LINK.sub(r"\1", found[1]).strip() if found else ""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph]
