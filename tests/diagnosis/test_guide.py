"""The Python of docs/guides/diagnose.md and transformers.md runs, and prints what is shown."""

import re
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs/guides"


def blocks(page: str, language: str) -> list[str]:
    text = (GUIDES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def run(page: str) -> None:
    names: dict = {}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), names)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("diagnose.md")
    assert (tmp_path / "layers.csv").exists() and (tmp_path / "layers.png").exists()


def test_pairnorm_keeps_the_rank_that_the_page_shows(capsys: pytest.CaptureFixture) -> None:
    run("transformers.md")
    plain, with_method = (float(line.split()[0]) for line in capsys.readouterr().out.splitlines())
    [shown] = blocks("transformers.md", "text")
    assert [plain, with_method] == pytest.approx(
        [float(n) for n in re.findall(r"^[\d.]+", shown, re.M)], rel=0.02
    )
    assert with_method > 2 * plain
