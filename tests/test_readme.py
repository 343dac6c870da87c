"""What the two READMEs name exists: files, headings, make targets, experiments, scripts."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "results" / "README.md"]


def prose(page: Path) -> str:
    """The page without its blocks of code, in which # is no heading."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives headings: lower case, no punctuation, hyphens for spaces."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=["README", "results"])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", prose(page))
    assert len(links) > 10
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=["README", "results"])
def test_what_is_to_be_typed_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = re.findall(r"^\.PHONY: (.+)$|^([a-z0-9_]+):", makefile(), re.M)
    known = {name for pair in targets for name in " ".join(pair).split()}
    asked = [name for code in typed(text) for name in made_by(code)]
    assert len(asked) > 5 and set(asked) <= known, set(asked) - known
    for name in re.findall(r"experiment=(\w+)", text):
        assert (ROOT / "configs" / "experiment" / f"{name}.yaml").exists(), name
    for name in re.findall(r"(?:scripts|benchmarks)/\w+\.py", text):
        assert (ROOT / name).exists(), name


def typed(text: str) -> list[str]:
    """Lines of the blocks of code, and code within sentences."""
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S))
    inline = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return blocks.splitlines() + [" ".join(code.split()) for code in inline]


def made_by(code: str) -> list[str]:
    """The targets of a line with make; options (A=b, A='b c') and comments are none."""
    line = re.sub(r"#.*|\w+=('[^']*'|\S*)", "", code)
    return re.findall(r"\w+", line.partition("make ")[2]) if re.match(r"\s*make ", line) else []


def makefile() -> str:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    for name in ("TABLES", "FIGURES"):
        (value,) = re.findall(rf"^{name} = (.+)$", text, re.M)
        text = text.replace(f"$({name})", value)
    return text
