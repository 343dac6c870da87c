"""The figures of the first page follow from the committed results, and are small."""

import csv
from pathlib import Path

import pytest

from oversmoothing.lab.data import planetoid
from oversmoothing.lab.papers import RESULTS, hero, speed

FIGURES = RESULTS / "figures"


def lines(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_the_dotted_line_is_the_share_of_the_largest_class(data_root: Path, tmp_path: Path) -> None:
    if not (data_root / "graphs/Planetoid/Cora").exists():
        pytest.skip("no Cora")
    cora = planetoid.load("cora", "public", 0, True, str(data_root), str(tmp_path))
    y = cora.y[cora.masks([0])["test"][0]]
    assert 100 * y.bincount().max().item() / len(y) == pytest.approx(hero.LARGEST)


def test_the_command_draws_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """After new results: `oversmoothing figure hero --publish`."""
    monkeypatch.chdir(tmp_path)
    assert hero.main([]) == 0
    folder = tmp_path / "outputs/figures"
    assert lines(folder / "verdicts.csv") == lines(FIGURES / "verdicts.csv")
    for new, old in zip(lines(folder / "hero.csv"), lines(FIGURES / "hero.csv"), strict=True):
        assert new[:3] == old[:3]
        if new[0] in hero.ENCODERS:
            assert [*map(float, new[3:])] == pytest.approx([*map(float, old[3:])], rel=0.02)
    for name in ("hero.png", "verdicts.png"):
        assert (folder / name).stat().st_size < 150_000 > (FIGURES / name).stat().st_size


def test_post_ln_collapses_and_pre_ln_keeps_most_directions() -> None:
    """What README's alt text says, in every seed."""
    rows = [row for row in lines(FIGURES / "hero.csv")[1:] if row[2] == str(hero.LAYERS)]
    post, pre = ([float(row[4]) for row in rows if row[0] == name] for name in hero.ENCODERS)
    assert max(post) < 2 and min(pre) > 15


def test_the_costs_of_methods_are_those_of_the_benchmarks() -> None:
    """After new measurements: `oversmoothing figure speed --publish`."""
    found = {title: speed.costs(*where) for title, where in speed.NETWORKS.items()}
    assert speed.table(found) in (RESULTS / "tables/speed.md").read_text("utf-8")
    assert {cost.method for cost in found["GCN of 8 layers on Cora"]} > {"GraphNorm", "residual"}
