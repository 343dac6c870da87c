"""Sphinx builds the site from the pages that docs/sources.py collects: `make docs`."""

import re
import tomllib
from pathlib import Path

from docutils.nodes import Element, SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

project = "oversmoothing"
html_title = "oversmoothing"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["dollarmath", "attrs_inline"]
myst_heading_anchors = 4  # links to headings are written as on GitHub
html_theme = "furo"
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
if repository := PROJECT.get("urls", {}).get("Repository"):  # then pages have a link to edit them
    html_theme_options = {"source_repository": repository, "source_branch": "main"}
    html_theme_options["source_directory"] = "docs/"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
highlight_language = "none"  # of blocks that name no language
pygments_style = "friendly"
html_math_renderer = "mathml"
smartquotes_action = "D"  # dashes only: ... and quotes are Python

add_module_names = False
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # attributes as one list
napoleon_use_rtype = False
nitpick_ignore_regex = [("py:.*", r"(torch|numpy|np|collections|pathlib)\..*|Tensor")]
nitpick_ignore_regex += [("py:class", r"(.*\.)?(Neighbours|Tokens)")]  # no part of the reference

SIGNS = {"−": "-", "←": r"\leftarrow ", "·": r"\cdot ", "‖": r"\Vert ", "⊙": r"\odot "}
SIGNS |= {"∼": r"\sim ", "→": r"\to ", "⇒": r"\Rightarrow ", "⇄": r"\rightleftarrows "}
ACCENTS = {"\N{COMBINING CIRCUMFLEX ACCENT}": "hat", "\N{COMBINING MACRON}": "bar"}


def setup(app: Sphinx) -> None:
    """Formulas become MathML, which needs no JavaScript and no network."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))


def _inline(self: HTML5Translator, node: Element) -> None:
    _show(self, node, as_block=False)


def _block(self: HTML5Translator, node: Element) -> None:
    _show(self, node, as_block=True)


def _show(self: HTML5Translator, node: Element, as_block: bool) -> None:
    try:
        self.body.append(tex2mathml(_tex(node.astext()), as_block))
    except MathError as error:
        logging.getLogger(__name__).warning("formula: %s", error, location=node)
    raise SkipNode


def _tex(text: str) -> str:
    """The formula with TeX for signs of docstrings that the converter does not know."""
    for sign, tex in SIGNS.items():
        text = text.replace(sign, tex)
    for accent, name in ACCENTS.items():
        text = re.sub(f"(.){accent}", rf"\\{name} \1", text)
    return re.sub(r"\\(hat|bar) (\w)", r"{{\\\1 \2}{}}", text)  # else an index lies below
