"""Every example of docs/guides/adding.md works from a folder outside the repository."""

import json
import re
from pathlib import Path

import pytest
from guide import PARTS, commands, errors, parts, run, section

from oversmoothing.errors import Problems
from oversmoothing.lab.launch import command as check
from oversmoothing.lab.launch.execute import execute

RINGS = ["trainer.epochs=4", "seeds=[0,1]", "logger=none", "threads=1"]
FAST = [*RINGS, "data.num_nodes=400"]
RANK = ["task=rank", "data=none", "trainer=none", "backbone=transformer", "backbone.depth=4"]
RANK += ["backbone.num_tokens=8", "backbone.dim=8", "task.gammas=null", "seeds=[0]", "logger=none"]


@pytest.mark.parametrize(
    ("title", "fast", "runs", "name"),
    [
        ("Adding an aggregator", FAST, 9, "nodes-csbm-mean_shift"),
        ("Adding a task", FAST, 1, "smoothing-csbm-centered"),
        ("Adding a backbone", FAST, 4, "nodes-csbm"),
        ("Adding a data set", RINGS, 1, "nodes-rings-centered"),
    ],
)
def test_the_example_runs(
    tmp_path: Path, title: str, fast: list[str], runs: int, name: str
) -> None:
    parts(tmp_path)
    for words in commands(section(title)):
        code, _, err = run(words, tmp_path, *([] if "--cfg" in words else fast))
        assert (code, errors(err)) == (0, ""), words
    found = [json.loads(path.read_text()) for path in tmp_path.glob("outputs/*/result.json")]
    assert len(found) == runs and all(result["name"].startswith(name) for result in found)
    assert all(set(result["seeds"]) == {"0", "1"} for result in found)


def test_the_code_of_the_guide_is_that_of_the_file() -> None:
    for code in re.findall(
        r"^```(?:python|yaml)\n(.*?)^```", section("Adding an aggregator"), re.M | re.S
    ):
        assert any(code in path.read_text("utf-8") for path in PARTS.glob("**/mean_shift.*")), code


def test_a_new_table_is_planned_run_and_written(tmp_path: Path) -> None:
    results = parts(tmp_path) / "results"
    plan, make = commands(section("Adding a table"))
    code, _, err = run(make, tmp_path, "--", "logger=none", "threads=1")
    assert (code, errors(err)) == (0, "")
    assert len((results / "depth.jsonl").read_text().splitlines()) == 4
    text = (results / "tables" / "depth.md").read_text()
    assert "4 of 4 cells measured" in text and "centered, γ = −1 against no method" in text
    assert (results / "figures" / "depth.png").exists()
    assert "nothing is missing" in run(plan, tmp_path)[1]


def test_the_template_of_a_submission_is_run_whole(tmp_path: Path) -> None:
    """On a tiny graph for all of its graphs, and two seeds; its own graphs are planned."""
    results = parts(tmp_path) / "results"
    plan, make = commands(section("Submit a method"))
    assert "48 runs are missing" in run(plan, tmp_path)[1]
    table = results / "expected/submission.yaml"
    text = re.sub(r"\[data=[^]]*\]", "[data=sbm, data.num_nodes=400]", table.read_text("utf-8"))
    text = text.replace("trainer.lr=0.01]", 'trainer.lr=0.01, trainer.epochs=5, "seeds=[0,1]"]')
    table.write_text(text.replace("L=32: [backbone.depth=32", "L=32: [backbone.depth=4"), "utf-8")
    assert "12 runs are missing" in run(plan, tmp_path)[1]
    code, _, err = run(make, tmp_path, "--", "threads=1")
    assert (code, errors(err)) == (0, "")
    records = (results / "submission.jsonl").read_text("utf-8").splitlines()
    assert len(records) == 12 and all('"1": {' in record for record in records)
    found = (results / "tables/submission.md").read_text("utf-8")
    assert "48 of 48 cells measured" in found and "Cora: mean shift against GCNII" in found


def test_mistakes_in_options_of_a_new_task_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(PARTS)
    words = ["--config-dir", str(PARTS), "task=smoothing"]
    with pytest.raises(Problems) as found:
        check.command([*words, "task.metric=rank", "task.metrc=rank"])
    assert "task.metric: expected one of cosine, effective_rank" in str(found.value)
    assert "task.metrc: no such key with task=smoothing; did you mean 'task.metric'" in str(
        found.value
    )


@pytest.fixture
def methods(tmp_path: Path) -> Path:
    """A user's folder with an aggregator, and a space in its name."""
    return parts(tmp_path).rename(tmp_path / "my methods")


def rank_of(outputs: Path, *words: str) -> dict:
    [config] = check.configs([*RANK, f"paths.outputs={outputs}", *words])
    return execute(config)["seeds"]["0"]


def test_a_new_aggregator_in_the_rank_simulation(
    methods: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """f = 0 changes nothing; f = 1 takes the mean of the mixed tokens out, so the rank stays up."""
    monkeypatch.syspath_prepend(methods)
    own = [f"hydra.searchpath=['file://{methods}']", "aggregator=mean_shift"]
    plain = rank_of(tmp_path / "a")
    assert rank_of(tmp_path / "b", *own, "aggregator.fraction=0") == plain
    whole = rank_of(tmp_path / "c", *own, "aggregator.fraction=1", "backbone.block=plain")
    assert whole["final_rank"] != rank_of(tmp_path / "d", "backbone.block=plain")["final_rank"]


def test_did_you_mean_knows_a_new_aggregator(methods: Path) -> None:
    with pytest.raises(Problems, match="did you mean 'mean_shift'"):
        check.command(["--config-dir", str(methods), "aggregator=men_shift"])
