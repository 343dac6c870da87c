"""scripts/figure.py finds every module of papers/ by its name, also a short one."""

import importlib
import inspect
import pkgutil
import re
import runpy
import sys
from pathlib import Path

import pytest

from oversmoothing.lab import papers

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/figure.py"
MODULES = sorted(module.name for module in pkgutil.iter_modules(papers.__path__))
SHORT = {
    "fig1": "centered_fig1",
    "fig2": "centered_fig2",
    "propositions": "centered_propositions",
    "layers": "contranorm_layers",
    "hem_fig3": "hemnet_fig3",
    "hem_fig4": "hemnet_fig4",
    "cost": "hemnet_cost",
    "elbo": "hemnet_elbo",
    "curves": "depth_curves",
    "cures": "cures",
    "claims": "claims",
    "demo": "demo_study",
    "matrix": "support_matrix",
    "limits": "wsss_limits",
    "training": "wsss_training",
}


def figure(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["figure.py", *words])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return left.value.code


def test_every_module_has_a_main_and_a_short_name() -> None:
    listed = re.search(r"^FIGURES = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    own = {"demo", "cures", "claims"}  # have targets of their own
    assert {*listed.split()} | own == SHORT.keys()
    assert sorted(SHORT.values()) == MODULES
    for name in MODULES:
        module = importlib.import_module(f"{papers.__name__}.{name}")
        assert list(inspect.signature(module.main).parameters) == ["argv"]


@pytest.mark.parametrize("words", [["--runs", "100000000000"], ["--iterations", "1"]])
def test_counts_are_limited(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert figure(["elbo", *words], monkeypatch) == 2


@pytest.mark.parametrize("short", SHORT)
def test_options_reach_the_module_that_a_short_name_means(
    short: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    module = importlib.import_module(f"{papers.__name__}.{SHORT[short]}")
    monkeypatch.setattr(module, "main", lambda argv: len(argv))
    assert figure([short, "--pdf", "--", "device=cpu"], monkeypatch) == 3


@pytest.mark.parametrize("name", ["fig", "fig7"])
def test_another_name_is_answered_with_those_that_there_are(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert figure([name], monkeypatch) == 2
    assert capsys.readouterr().err == (
        f"error: {name}: no figure; expected one of {', '.join(MODULES)}\n"
    )


def test_help_comes_from_the_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert figure(["hem_fig4", "--help"], monkeypatch) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: figure.py hemnet_fig4 ") and "--pdf" in shown


@pytest.mark.parametrize(
    "name", ["propositions", "cures --plan", "fig1 --publish", "hem_fig3 --publish"]
)
def test_overrides_that_make_other_runs_are_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Before any run; also other seeds, which a run's id does not tell."""
    words = [*name.split(), "--", "device=cpu", "seeds=[9]"]
    assert figure(words, monkeypatch) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "overrides" in said
