"""The harness of the benchmarks, by tiny cases, and the record that they keep."""

import inspect
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from in_process import ROOT, here

RECORD = ROOT / "results/bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return pytest.importorskip("bench")


def test_a_row_compares_round_by_round(bench: ModuleType) -> None:
    ours, theirs = [1.0, 2.0, 4.0], [3.0, 4.0, 20.0]
    row = bench.row("work", "s", ours, "peer", theirs)
    assert [row[f"ratio{end}"] for end in bench.SPREAD] == ["3", "2", "5"]
    over = bench.row("work", "s", ours, "peer", theirs, overhead=True)
    assert float(over["ratio"]) == pytest.approx(1 / 3, rel=1e-3)
    with pytest.raises(ValueError):
        bench.row("work", "s", ours, "peer", theirs[:2])


def test_forms_take_turns_after_a_warm_up(bench: ModuleType, tmp_path: Path) -> None:
    calls, place = [], bench.torch.device("cpu")

    def form(name: str) -> None:
        calls.append(name)
        sum(range(2_000_000))  # longer than the shortest round

    steps = {name: lambda name=name: form(name) for name in "AB"}
    seconds = bench.interleaved(steps, bench.Run(place, 3, tmp_path))
    assert "".join(calls) == "AABB" + 3 * "AB"
    assert {name: len(values) for name, values in seconds.items()} == {"A": 3, "B": 3}


@pytest.mark.parametrize("words", ["centering --tokens 16 --batch 1 --heads 1", "pyg --depths 2"])
def test_a_case_is_measured_and_recorded(
    words: str, bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = words.split()[0]
    assert not here(
        [str(ROOT / "benchmarks/bench.py"), *words.split(), "--rounds", "2"], monkeypatch
    )
    theme = "images" if case == "centering" else "graphs"
    rows = bench.load(tmp_path / f"outputs/bench/{theme}.csv")
    assert all(float(row["ours"]) > 0 and row["commit"] and row["device"] for row in rows)
    assert {row["case"] for row in rows} == {case}


def test_the_record_is_whole(bench: ModuleType, tmp_path: Path) -> None:
    """Every row has its spread and origin, and the pages show the rows."""
    for theme in bench.RECORDED:
        rows = bench.load(RECORD / f"{theme}.csv")
        for row in rows:
            values = [float(row[f"ours{end}"]) for end in bench.SPREAD]
            assert values[1] <= values[0] <= values[2] or values[0] != values[0]
            assert all(row[name] for name in ("n", "command", "commit", "device", "date"))
        shutil.copy(RECORD / f"{theme}.csv", tmp_path)
        shown = bench.write_page(tmp_path, theme, bench.titles(theme)).read_text("utf-8")
        assert shown == (RECORD / f"{theme}.md").read_text("utf-8"), "bench.py page --publish"


def test_every_case_says_what_it_measures(bench: ModuleType) -> None:
    for theme in bench.THEMES:
        for case in bench.cases(theme).values():
            assert inspect.getdoc(case).split("\n")[0].endswith(".")
            assert bench.case_of(case.__name__) is case
