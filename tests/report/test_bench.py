"""Numbers about speed: all from results/bench.json, none elsewhere."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEED = re.compile(
    r"\d[\d.,]* ?(times as fast|times faster|images/s|(s|ms) per (epoch|step))|\d×\D"
)


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch):  # noqa: ANN201
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("record")


def test_the_tables_are_those_of_the_record(record) -> None:  # noqa: ANN001
    for name, rows in record.load().items():
        text = (ROOT / f"results/bench/{name}.md").read_text("utf-8")
        assert text == f"# {name}\n\n{record.table(rows).rstrip()}\n"


def test_each_row_names_a_command_that_exists_and_its_spread(record) -> None:  # noqa: ANN001
    for rows in record.load().values():
        for row in rows:
            words = row["command"].split()
            assert (ROOT / next(word for word in words if word.endswith(".py"))).exists()
            assert row["git"] and row["machine"] and row["date"]
            assert row["ours"]["low"] <= row["ours"]["median"] <= row["ours"]["high"]
            assert row["ours"]["n"] >= 1


def test_no_other_text_holds_a_number_about_speed() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs/guides").glob("*.md")]
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "configs").rglob("*.yaml")]
    for path in [*pages, *sources]:
        found = [line for line in path.read_text("utf-8").splitlines() if SPEED.search(line)]
        assert not found, (path.name, found)


def test_a_row_compares_round_by_round(record) -> None:  # noqa: ANN001
    ours, theirs = [1.0, 2.0, 4.0], [3.0, 4.0, 20.0]
    row = record.row("work", "s", ours, peer="peer", theirs=theirs, goal=3)
    assert row["ratio"] == {"median": 3, "low": 2, "high": 5, "n": 3} and row["met"]
    over = record.row("work", "s", ours, peer="peer", theirs=theirs, overhead=True, goal=0.3)
    assert over["ratio"]["median"] == pytest.approx(1 / 3, rel=1e-3) and not over["met"]
    with pytest.raises(ValueError):
        record.row("work", "s", ours, peer="peer", theirs=theirs[:2])


def test_rows_of_a_gpu_are_kept_apart(record, tmp_path, monkeypatch) -> None:  # noqa: ANN001
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "_origin", dict)
    monkeypatch.setattr(record, "_caption", lambda row: "")
    for gpu, ms in ((False, 9.0), (True, 1.0)):
        monkeypatch.setattr("torch.cuda.is_initialized", lambda gpu=gpu: gpu)
        record.save([record.row("step", "ms", [ms], goal=5)], "bench")
    every = record.load(tmp_path / "outputs")
    found = {name: rows[0]["ours"]["median"] for name, rows in every.items()}
    assert found == {"bench": 9.0, "bench_gpu": 1.0}
    assert "| step, on a GPU | ms |  | 1 | ≤ 5: met |" in record.goals(every)


def test_what_is_not_compared_has_one_line_for_each_work(record, monkeypatch) -> None:  # noqa: ANN001
    monkeypatch.setattr(record, "_caption", lambda row: "")
    rows = [record.row("a", "ms", [1]), record.row("a", "MB", [2]), record.row("b", "MB", [3])]
    lines = record.table(rows).splitlines()
    assert lines[0] == "| work | ms | MB |" and lines[2:4] == ["| a | 1 | 2 |", "| b |  | 3 |"]
