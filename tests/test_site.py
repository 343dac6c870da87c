"""The site shows every page and every public name, and its links lead to its own files."""

import importlib
import inspect
import re
import runpy
from pathlib import Path

import pytest

import oversmoothing as osm

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCES = runpy.run_path(str(DOCS / "sources.py"))
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)[)#]")


def test_the_menu_has_every_page() -> None:
    menu = SOURCES["menu"]((DOCS / "index.md").read_text(encoding="utf-8"))
    listed = re.findall(r"<(.+\.md)>$", menu, re.M)
    assert len(listed) == len(set(listed))
    for page in DOCS.glob("*/*.md"):
        assert page.relative_to(DOCS).as_posix() in listed


def test_links_of_the_site_lead_to_its_files(tmp_path: Path) -> None:
    """Sources and configs that pages link to are pages; results keep their place."""
    SOURCES["collect"](tmp_path)
    pages = [*tmp_path.rglob("*.md")]
    assert {"index.md", "repo/results/claims.md", "repo/configs/backbone/gcn.yaml.md"} <= {
        page.relative_to(tmp_path).as_posix() for page in pages
    }
    assert not (tmp_path / "facts.yaml").exists()
    for page in pages:
        if page.suffixes == [".md"]:  # not a source, whose text has no links
            for link in LINK.findall(page.read_text(encoding="utf-8")):
                assert (page.parent / link).exists(), f"{page}: {link}"


def test_the_reference_has_every_public_name() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    shown = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", text, re.M))
    names = {f"oversmoothing.{name}" for name in osm.__all__} - {"oversmoothing.__version__"}
    names |= {f"oversmoothing.metrics.{name}" for name in osm.metrics.__all__}
    assert names - {"oversmoothing.metrics"} <= shown


def test_formulas_of_the_reference_can_be_shown() -> None:
    """A sign that the converter does not know is a warning of the site, and the site then fails."""
    pytest.importorskip("sphinx")
    from docutils.utils.math.latex2mathml import tex2mathml

    tex = runpy.run_path(str(DOCS / "conf.py"))["_tex"]
    reference = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    modules = set(re.findall(r"^\.\. automodule:: ([\w.]+)", reference, re.M))
    shown = 0
    for module in modules:
        text = inspect.getsource(importlib.import_module(module))
        for formula in re.findall(r"^ *\.\. math:: (.+(?:\n +\S.*)*)", text, re.M):
            tex2mathml(tex(formula.replace("\\\\", "\\")), as_block=True)
            shown += 1
    assert shown > 5
