"""README and docs tell the truth: links resolve, commands are accepted, code runs."""

import argparse
import contextlib
import fnmatch
import functools
import io
import re
import runpy
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from guide import ROOT, commands, files

from oversmoothing.config.parts import config_problems
from oversmoothing.config.plan import plan
from oversmoothing.report.expected import load

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "results").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.parent.name not in ("tables", "fig1", "propositions")]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TABLES = {cell.table for cell in load(ROOT / "results" / "expected")}
PLUGINS = {
    "optuna": "hydra_plugins.hydra_optuna_sweeper",
    "slurm": "hydra_plugins.hydra_submitit_launcher",
}  # what an option needs
ADDED = ("an aggregator", "a task", "a backbone", "a data set", "a table")
PLAIN = ("source .venv/bin/activate", "wandb login")  # commands that are not of this repository
OWN = {name.partition("/")[2] for part in ADDED for name in files(f"Adding {part}")}
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
            known_flags(*words[1:])
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

    options, words = parser.parse_known_args([w for w in words if w != "--help"])
    needed = [PLUGINS[name] for word in words if (name := word.split("=")[-1]) in PLUGINS]
    if options.config_dir or not all(map(find_spec, needed)):
        return  # of test_adding.py, or of a plugin that is not installed
    planned = plan(words, options.m)
    assert planned.configs and not planned.problems, (words, planned.problems)
    problems = [config_problems(config) for config in planned.configs]
    assert not any(problems), (words, problems)


def known_flags(script: str, *words: str) -> None:
    """A script exists and knows its table or figure, and its help names every flag."""
    assert (ROOT / script).exists(), script
    figure = script.endswith("figure.py")
    if script.endswith("table.py") and "--results" not in words:
        assert words[0] in TABLES, words[0]
    if figure:
        assert len(fnmatch.filter(FIGURES, f"*{words[0].replace('_', '*_')}*")) == 1, words[0]
    words = words[: words.index("--")] if "--" in words else words
    for flag in (word for word in words if word.startswith("-")):
        assert flag in printed_help(script, *(words[:1] if figure else ())), f"{script} {flag}"


@functools.cache
def printed_help(script: str, *words: str) -> str:
    """The help of a script; raises if there is no such script, or no such figure."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", [script, *words, "--help"])
        patch.syspath_prepend((ROOT / script).parent)
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(ROOT / script), run_name="__main__")
    assert not stopped.value.code, f"{script} {words}"
    return printed.getvalue()


def made(words: list[str]) -> None:
    """A dry run of make finds the targets, and the scripts accept what they get from it."""
    dry = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    assert dry.returncode == 0, dry.stderr
    for name in (word.split("=")[0] for word in words if "=" in word):
        assert f"$({name})" in MAKEFILE, name
    for line in re.findall(r"(scripts/\w+\.py.*)", dry.stdout.replace("\\\n", " ")):
        known_flags(*shlex.split(line))


@every_page
def test_named_parts_exist(page: Path) -> None:
    """``group=option`` and paths of files, in commands and in sentences."""
    text = re.sub(r"^```\n.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    groups = "experiment|data|backbone|aggregator|trainer|task"
    for group, option in re.findall(rf"(?<![\w.])({groups})=([a-z]\w+)", text):
        yaml = f"{group}/{option}.yaml"
        assert yaml in OWN or (ROOT / "configs" / yaml).exists(), yaml
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
