"""The command: from a search to a cell of the table."""

import csv
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from oversmoothing.lab.search.cell import CellSearch
from oversmoothing.lab.search.space import read_space

ROOT = Path(__file__).parents[2]
TABLE = """
tables:
  small:
    {title: Small, source: here, ours: true, experiment: gnn_table6, metric: test_accuracy,
     unit: "%", tuned: tuning/small, overrides: [data=sbm, data.num_nodes=310],
     columns: {L=2: [backbone.depth=2], L=3: [backbone.depth=3]},
     rows: {centered: {overrides: [aggregator=centered]}}}
  plain:
    {title: Plain, source: here, ours: true, experiment: gnn_table6, metric: test_accuracy,
     unit: "%", columns: {L=2: [backbone.depth=2]}, rows: {a: {overrides: []}}}
"""
SPACE = """
trials: 3
rungs: [1]
seeds: [5, 6]
final_seeds: [0, 1]
overrides: [trainer.eval_every=1]
common: {trainer.lr: [0.01, 0.1], trainer.epochs: [2]}
methods: {centered: {aggregator.gamma: [-0.5]}}
"""
GROUP = "'aggregator@then': [layernorm]"


def called(folder: Path, script: str, *words: str) -> subprocess.CompletedProcess:
    how = ["threads=1", "matmul=medium", "logger=none", f"paths.outputs={folder / 'outputs'}"]
    words = ("--results", str(folder / "results"), *words, "--", *how)
    command = [sys.executable, str(ROOT / f"scripts/{script}.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("expected/small.yaml", TABLE), ("tuning/small/space.yaml", SPACE)):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


def test_the_winner_of_a_search_is_the_run_of_its_cell(folder: Path) -> None:
    done = called(folder, "tune", "small", "--columns", "L=2")
    assert done.returncode == 0, done.stderr
    tuning = folder / "results/tuning/small"
    lines = [*csv.DictReader((tuning / "centered.csv").open())]
    assert [line["trial"] for line in lines] == ["0", "1", "2"]
    ends = {int(line["trial"]): line["end"] for line in lines if line["end"]}
    assert len(ends) == 2 and all(len(end.split()) == 2 for end in ends.values())
    best = yaml.safe_load((tuning / "best.yaml").read_text())[""]["centered"]["L=2"]
    means = {trial: sum(map(float, end.split())) / 2 for trial, end in ends.items()}
    assert best["val_accuracy"] == pytest.approx(means[best["trial"]], abs=0.01)
    assert means[best["trial"]] == max(means.values())
    assert best["matmul"] == "medium"
    assert best["overrides"][-1] == "seeds=[0,1]"
    again = called(folder, "tune", "small", "--columns", "L=2")
    assert again.stdout.strip() == "nothing is missing"
    open_ = called(folder, "table", "small", "--plan", "--columns", "L=3").stdout
    assert "cells without settings: 1, run python scripts/tune.py small" in open_
    plan = called(folder, "table", "small", "--plan")
    [run] = [line for line in plan.stdout.splitlines() if "train.py" in line]
    assert all(word in run for word in best["overrides"][:-1])


def test_a_changed_space_is_searched_again_in_two_processes(folder: Path) -> None:
    tuning = folder / "results/tuning/small"
    assert called(folder, "tune", "small", "--columns", "L=2").returncode == 0
    other = SPACE.replace("[0, 1]", "[0, 2]").replace("aggregator.gamma: [-0.5]", GROUP)
    (tuning / "space.yaml").write_text(other)
    done = called(folder, "tune", "small", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    best = yaml.safe_load((tuning / "best.yaml").read_text())[""]["centered"]
    assert [best[column]["overrides"][-1] for column in best] == ["seeds=[0,2]"] * 2
    lines = [*csv.DictReader((tuning / "centered.csv").open())]
    assert {line["aggregator@then"] for line in lines if line["trial"] != "0"} == {"layernorm"}
    assert called(folder, "tune", "small").stdout.strip() == "nothing is missing"
    (tuning / "space.yaml").write_text(other.replace("[5, 6]", "[5, 7]"))
    assert "L=3" in called(folder, "tune", "small", "--plan").stdout
    (tuning / "space.yaml").write_text(other.replace("{centered:", "{centred:"))
    done = called(folder, "tune", "small")
    assert done.returncode == 2
    assert "centred is not a row of the table; did you mean 'centered'?" in done.stderr


def test_mistakes_in_a_later_search_are_found_before_any_work(folder: Path) -> None:
    table = folder / "results/expected/small.yaml"
    later = (
        "rows: {none: {overrides: [aggregator=none]}, centered: {overrides: [aggregator=centered]}}"
    )
    table.write_text(TABLE.replace("rows: {centered: {overrides: [aggregator=centered]}}", later))
    space = folder / "results/tuning/small/space.yaml"
    space.write_text(SPACE.replace("aggregator.gamma: [-0.5]", "aggregator.gama: [-0.5]"))
    done = called(folder, "tune", "small")
    assert done.returncode == 2 and not done.stdout
    assert "small-centered-L=2: aggregator.gama: no such key" in done.stderr


def test_settings_that_another_process_found_are_not_searched_again(folder: Path) -> None:
    cell = ("small", "", "centered", "L=2", ("experiment=gnn_table6", "aggregator=centered"))
    path = folder / "results/tuning/small"
    how = ("data=sbm", "data.num_nodes=310", "backbone.depth=2", f"paths.outputs={folder}")
    search = CellSearch(*cell, read_space(path / "space.yaml"), path, (*how, "logger=none"))
    assert "of the validation nodes" in search.run(fresh=False)
    best = (path / "best.yaml").read_text()
    assert search.run(fresh=False).endswith("found by another process")
    assert (path / "best.yaml").read_text() == best


def test_a_crash_of_one_search_is_said_and_does_not_end_the_others(
    capsys: pytest.CaptureFixture,
) -> None:
    attempt = runpy.run_path(str(ROOT / "scripts/tune.py"))["attempt"]

    def crash(most: int | None, fresh: bool) -> str:
        raise RuntimeError("out of memory")

    assert not attempt(SimpleNamespace(name="table6-Cora", run=crash), most=None, fresh=False)
    said = capsys.readouterr().err
    assert "error: table6-Cora: RuntimeError, see above" in said and "out of memory" in said
    found = SimpleNamespace(name="table6-Cora", run=lambda most, fresh: "found")
    assert attempt(found, most=None, fresh=False)


def test_a_table_without_a_search_is_one_line(folder: Path) -> None:
    done = called(folder, "tune", "plain")
    assert done.returncode == 2
    assert done.stderr.startswith("error: plain: this table has no search")
    assert len(done.stderr.splitlines()) == 1
