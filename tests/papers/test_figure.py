"""`oversmoothing figure` finds every module of papers/ by the name of its figure."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from in_process import here

from oversmoothing.lab import papers
from oversmoothing.lab.figure import FIGURES

ROOT = Path(__file__).parents[2]


def figure(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    return here(["figure", *words], monkeypatch)


def test_every_module_is_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = re.search(
        r"^FIGURES = ((?:.*\\\n)?.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert {*listed[1].replace("\\", "").split()} | {"demo"} == FIGURES.keys()
    modules = {module.name for module in pkgutil.iter_modules(papers.__path__)}
    modules -= {"cures_cells", "cures_figures", "cures_page"}  # parts of cures
    assert {module for module, _ in FIGURES.values()} == modules
    for short, (name, _) in FIGURES.items():
        module = importlib.import_module(f"{papers.__name__}.{name}")
        assert list(inspect.signature(module.main).parameters) == ["argv"]
        if name not in ("claims", "demo_study"):
            assert f"oversmoothing figure {short}" in module.__doc__
        monkeypatch.setattr(module, "main", lambda argv: len(argv))
        assert figure([short, "--pdf", "--", "device=cpu"], monkeypatch) == 3


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("elbow", "'elbo'"),
        ("fig7", "fig7: "),
        ("elbo --runs 100000000000", "--runs"),
        ("elbo --iterations 1", "--iterations"),
        ("propositions -- seeds=[9]", "seeds=[9]"),  # other runs; before any run
        ("cures --plan -- seeds=[9]", "seeds=[9]"),
        ("fig1 --publish -- seeds=[9]", "--publish"),
        ("hem_fig3 --publish -- seeds=[9]", "--publish"),
        ("claims --only nothing", "--only nothing"),
    ],
)
def test_what_is_wrong_is_named_before_any_work(
    command: str, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert figure(command.split(), monkeypatch) == 2
    assert named in capsys.readouterr().err
