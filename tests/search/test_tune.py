"""The command: from a search to a cell of the table."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from in_process import here

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
Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("expected/small.yaml", TABLE), ("tuning/small/space.yaml", SPACE)):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


@pytest.fixture
def called(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Called:
    """Runs a command in this process; exit code, stdout and stderr."""

    def call(command: str, *words: str) -> tuple[int, str, str]:
        how = ["threads=1", "matmul=medium", "logger=none", f"paths.outputs={folder / 'outputs'}"]
        argv = [command, *words, "--results", str(folder / "results"), "--", *how]
        return here(argv, monkeypatch) or 0, *capsys.readouterr()

    return call


def best_of(folder: Path) -> dict:
    return yaml.safe_load((folder / "results/tuning/small/best.yaml").read_text())[""]["centered"]


def test_the_winner_of_a_search_is_the_run_of_its_cell(called: Called, folder: Path) -> None:
    assert called("tune", "small", "--columns", "L=2")[0] == 0
    lines = [*csv.DictReader((folder / "results/tuning/small/centered.csv").open())]
    assert [line["trial"] for line in lines] == ["0", "1", "2"]
    ends = {int(line["trial"]): line["end"] for line in lines if line["end"]}
    assert len(ends) == 2 and all(len(end.split()) == 2 for end in ends.values())
    best = best_of(folder)["L=2"]
    means = {trial: sum(map(float, end.split())) / 2 for trial, end in ends.items()}
    assert best["val_accuracy"] == pytest.approx(means[best["trial"]], abs=0.01)
    assert means[best["trial"]] == max(means.values())
    assert best["matmul"] == "medium"
    assert best["overrides"][-1] == "seeds=[0,1]"
    assert called("tune", "small", "--columns", "L=2") == (0, "nothing is missing\n", "")
    _, open_, _ = called("table", "small", "--plan", "--columns", "L=3")
    assert "cells without settings: 1, run oversmoothing tune small" in open_
    _, plan, _ = called("table", "small", "--plan")
    [run] = [line for line in plan.splitlines() if "train.py" in line]
    assert all(word in run for word in best["overrides"][:-1])


def test_a_changed_space_is_searched_again(called: Called, folder: Path) -> None:
    tuning = folder / "results/tuning/small"
    assert called("tune", "small", "--columns", "L=2")[0] == 0
    other = SPACE.replace("[0, 1]", "[0, 2]").replace("aggregator.gamma: [-0.5]", GROUP)
    (tuning / "space.yaml").write_text(other)
    assert called("tune", "small")[0] == 0
    assert [own["overrides"][-1] for own in best_of(folder).values()] == ["seeds=[0,2]"] * 2
    lines = [*csv.DictReader((tuning / "centered.csv").open())]
    assert {line["aggregator@then"] for line in lines if line["trial"] != "0"} == {"layernorm"}
    assert called("tune", "small")[1] == "nothing is missing\n"
    (tuning / "space.yaml").write_text(other.replace("[5, 6]", "[5, 7]"))
    assert "L=3" in called("tune", "small", "--plan")[1]


def test_two_searches_run_side_by_side(called: Called, folder: Path) -> None:
    assert called("tune", "small", "--jobs", "2")[0] == 0
    assert best_of(folder).keys() == {"L=2", "L=3"}


def test_mistakes_in_a_later_search_are_found_before_any_work(called: Called, folder: Path) -> None:
    table = folder / "results/expected/small.yaml"
    later = (
        "rows: {none: {overrides: [aggregator=none]}, centered: {overrides: [aggregator=centered]}}"
    )
    table.write_text(TABLE.replace("rows: {centered: {overrides: [aggregator=centered]}}", later))
    space = folder / "results/tuning/small/space.yaml"
    space.write_text(SPACE.replace("aggregator.gamma: [-0.5]", "aggregator.gama: [-0.5]"))
    code, out, err = called("tune", "small")
    assert (code, out) == (2, "") and "small-centered-L=2: aggregator.gama: " in err
    space.write_text(SPACE.replace("{centered:", "{centred:"))
    code, out, err = called("tune", "small")
    assert (code, out) == (2, "") and "centred" in err and "'centered'" in err
    code, _, err = called("tune", "plain")
    assert code == 2 and err.startswith("error: plain: ") and err.count("\n") == 1
