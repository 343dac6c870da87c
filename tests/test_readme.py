"""README and docs tell the truth: links resolve, commands are accepted, code runs."""

import argparse
import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from guide import ROOT, commands

from oversmoothing.config.parts import config_problems
from oversmoothing.config.plan import plan
from oversmoothing.report.expected import load

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "results").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.parent.name not in ("tables", "fig1", "propositions")]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
PLUGINS = {"slurm": "hydra_plugins.hydra_submitit_launcher"}  # what an option needs
PLAIN = (
    "source .venv/bin/activate",
    "wandb login",
)  # words of a shell that are no commands of ours
every_page = pytest.mark.parametrize("page", PAGES, ids=NAMES)


def prose(page: Path) -> str:
    """The page without its blocks of code, in which # is no heading."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives headings: lower case, no punctuation, hyphens for spaces."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*/*.md"):
        assert f"]({page.parent.name}/{page.name})" in index


@every_page
def test_commands_are_accepted(page: Path) -> None:
    """Every line of the ``sh`` blocks, without running it."""
    for words in commands(page.read_text(encoding="utf-8")):
        while re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        line = " ".join(words)
        if words[0] == "torchrun" or words[:2] == ["python", "train.py"]:
            accepted(words[words.index("train.py") + 1 :])
        elif words[0] == "python":
            known_flags(words[1:])
        elif words[0] == "make":
            made(words[1:])
        else:
            assert line in PLAIN, line


def accepted(words: list[str]) -> None:
    """Composes every combination and checks names and types; needs neither data nor weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", action="store_true")
    parser.add_argument("--config-dir")
    parser.add_argument("--cfg")
    parser.add_argument("--help-groups", action="store_true")
    options, words = parser.parse_known_args([w for w in words if w != "--help"])
    needed = [PLUGINS[name] for word in words if (name := word.split("=")[-1]) in PLUGINS]
    if options.config_dir or not all(map(find_spec, needed)):
        return  # of test_adding.py, or of a plugin that is not installed
    planned = plan(words, options.m)
    assert planned.configs and not planned.problems, (words, planned.problems)
    problems = [config_problems(config) for config in planned.configs]
    assert not any(problems), (words, problems)


def known_flags(words: list[str]) -> None:
    """A script exists and its help names every flag."""
    usage = helps(words[0])
    for flag in re.findall(r"(?:^| )(--?[a-z][a-z-]*)", " " + " ".join(words[1:])):
        assert flag in usage, f"{words[0]} {flag}"


def helps(script: str, _known: dict[str, str] = {}) -> str:  # noqa: B006 (a cache)
    if script not in _known:
        _known[script] = printed_help(script)
    return _known[script]


def printed_help(script: str) -> str:
    """What a script prints for --help."""
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(sys, "argv", [script, "--help"])
        patch.setattr(
            argparse.ArgumentParser, "_print_message", lambda _, text, __: lines.append(text)
        )
        patch.syspath_prepend((ROOT / script).parent)
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert not stopped.value.code, script
    return "".join(lines)


def made(words: list[str]) -> None:
    """The targets of a make command; NAME is a table or a figure."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    given = dict(word.split("=", 1) for word in words if "=" in word)
    targets = [word for word in words if "=" not in word]
    for target in targets:
        assert re.search(rf"^(\.PHONY:.* )?{target}\b.*:?", makefile, re.M), target
    for variable in given:
        assert f"$({variable})" in makefile or f"({variable})," in makefile, variable
    if "NAME" in given and "figure" not in targets:
        assert given["NAME"] in tables(), given["NAME"]


def tables() -> set[str]:
    return {cell.table for cell in load(ROOT / "results" / "expected")}


@every_page
def test_named_parts_exist(page: Path) -> None:
    """``group=option`` and paths of files, anywhere in a page."""
    text = page.read_text(encoding="utf-8")
    groups = "experiment|data|backbone|aggregator|trainer|task"
    for group, option in re.findall(rf"(?<![\w.])({groups})=([a-z]\w+)", text):
        own = "config-dir" in text and option not in ("centered", "none")
        assert own or (ROOT / f"configs/{group}/{option}.yaml").exists(), f"{group}={option}"
    for name in re.findall(r"(?:scripts|benchmarks|configs|src|tests)/[\w/]+\.(?:py|yaml)", text):
        assert (ROOT / name).exists(), name


@every_page
def test_python_blocks_run(page: Path) -> None:
    """All but those that are a file of the guide, which test_adding.py runs."""
    text = page.read_text(encoding="utf-8")
    for code in re.findall(r"(?<!:\n\n)^```python\n(.*?)^```", text, re.M | re.S):
        exec(compile(code, str(page), "exec"), {})


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 160
    claims = text.partition("\n## What holds\n")[2].partition("\n## ")[0]
    rows = [line for line in claims.splitlines() if line.startswith("|")][2:]
    assert 0 < len(rows) <= 8
