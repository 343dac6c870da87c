"""Hooks of MkDocs: formulas become MathML, and links that leave docs/ find their files.

On GitHub, pages link to results, sources and configs by their place in the repository. On the site
these files lie below ``repo/``, where sources and folders are pages that show them.
"""

import re
from pathlib import Path, PurePosixPath

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)#\s]+)(?=[)#])")
LANGUAGES = {".py": "python", ".yaml": "yaml"}


class Formulas(Preprocessor):
    """``$$…$$`` of pages and ``.. math::`` of docstrings as MathML, which needs no JavaScript."""

    FORMULA = re.compile(r"\$\$([^$]+)\$\$|^\.\. math:: (.+(?:\n +\S.*)*)", re.M)
    ROLE = re.compile(r":(?:func|class|meth|mod|attr):(?=`)")

    def run(self, lines: list[str]) -> list[str]:
        text = self.ROLE.sub("", "\n".join(lines))
        return self.FORMULA.sub(self._mathml, text).split("\n")

    def _mathml(self, found: re.Match[str]) -> str:
        tex = " ".join((found[1] or found[2]).split()).replace(r"\mathbf{1}", "𝟏")  # bold anywhere
        return f"\n{self.md.htmlStash.store(convert(tex, display='block'))}\n"


class Math(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(Formulas(md), "formulas", 22)  # behind fences, before HTML


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.markdown_extensions.append(Math())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds everything that pages link to, and what the added pages link to."""
    pages = [DOCS / file.src_uri for file in files.documentation_pages()]
    texts = [(page, page.read_text(encoding="utf-8")) for page in pages]
    while texts:
        place, text = texts.pop()
        for target in (_target(place, link) for link in LINK.findall(text)):
            uri = _uri(target)
            if not target.exists() or uri in files.src_uris:
                continue
            if uri.endswith(".md"):
                shown = _shown(target)
                files.append(File.generated(config, uri, content=shown))
                texts.append((target, shown))
            else:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links into the repository become links on the site."""
    here = PurePosixPath(page.file.src_uri)
    place = _place(page.file.src_uri)

    def replaced(link: re.Match[str]) -> str:
        uri = _uri(_target(place, link[1]))
        return "../" * (len(here.parts) - 1) + uri if uri in files.src_uris else link[1]

    return LINK.sub(replaced, markdown)


def _target(place: Path, link: str) -> Path:
    """What a link on the page of a file means."""
    return ((place if place.is_dir() else place.parent) / link).resolve()


def _uri(target: Path) -> str:
    """Where a file of the repository lies on the site."""
    if target == ROOT / "README.md":
        return "index.md"
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    inside = f"repo/{target.relative_to(ROOT).as_posix()}" if target.is_relative_to(ROOT) else ""
    is_page = target.is_dir() or target.suffix in LANGUAGES
    return f"{inside}.md" if is_page else inside


def _place(uri: str) -> Path:
    """The file or folder whose page this is."""
    if not uri.startswith("repo/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix("repo/")
    return path if path.exists() else path.with_suffix("")


def _shown(target: Path) -> str:
    """The page of a file or folder."""
    title = f"# {target.relative_to(ROOT).as_posix()}\n\n"
    if target.is_dir():
        entries = (p.name for p in sorted(target.iterdir()) if p.suffix != ".csv")
        return title + "\n".join(f"- [{name}]({name})" for name in entries)
    text = target.read_text(encoding="utf-8")
    language = LANGUAGES.get(target.suffix)
    return f"{title}````{language}\n{text}\n````\n" if language else text
