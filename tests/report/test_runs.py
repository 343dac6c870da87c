"""The page of all runs has each recorded run once, with the numbers of its record."""

import csv
import json
import re
import shlex
import shutil
import statistics
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.report.runs import Run, recorded_runs, write_runs
from oversmoothing.lab.store.identity import ids
from oversmoothing.lab.store.results import look_up

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return recorded_runs(RESULTS)


def recorded() -> dict[tuple[str, str], dict[str, dict]]:
    """Source and id of every recorded run -> its seeds, read anew."""
    found: dict[tuple[str, str], dict[str, dict]] = {}
    for path in RESULTS.glob("*.jsonl"):
        for record in map(json.loads, path.read_text("utf-8").splitlines()):
            found.setdefault(("table", record["id"]), {}).update(record["seeds"])
    with (RESULTS / "cures.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            accuracy = float(line["test_accuracy"])
            numbers = {"test_accuracy": accuracy, "test_roc_auc": accuracy}
            found.setdefault(("cures", line["run"]), {})[line["seed"]] = numbers
    return {key: of for key, of in found.items() if key[0] == "table" or len(of) > 1}


def test_each_recorded_run_is_there_once_with_its_numbers(runs: list[Run]) -> None:
    known = recorded()
    assert Counter(run.id for run in runs) == Counter(id for _, id in known)
    for (_, id), seeds in known.items():
        (run,) = [run for run in runs if run.id == id]
        values = [look_up(seeds[seed], run.metric, id) for seed in run.values]
        assert {*run.values} == {*seeds} and run.n == len(seeds)
        assert [*run.values.values()] == pytest.approx(values, abs=6e-5)
        assert run.mean == pytest.approx(statistics.fmean(values), abs=6e-5)
        if run.n > 1:
            assert run.std == pytest.approx(statistics.stdev(values), abs=6e-5)


def test_its_command_is_of_that_run(runs: list[Run]) -> None:
    for run in runs[::60]:
        python, script, *words = shlex.split(run.command)
        config = compose_config(words)
        assert run.id in ids(config) and [*map(str, config.seeds)] == [*run.values]
        depth = (config.backbone or {}).get("depth")
        assert run.depth == (int(depth) if depth else None)


def test_the_page_needs_no_network_and_holds_the_rows(tmp_path: Path, runs: list[Run]) -> None:
    write_runs(tmp_path / "runs.html", RESULTS, ("index.html", "Documentation"))
    text = (tmp_path / "runs.html").read_text("utf-8")
    rows = json.loads(re.search(r"^const RUNS = (.*);$", text, re.M)[1])
    assert [row["id"] for row in rows] == [run.id for run in runs]
    assert not re.search(r"https?://|src=|@import", re.sub(r"^const RUNS.*$", "", text, flags=re.M))
    assert len(text.encode()) < 1_500_000
    assert '<a href="index.html">Documentation</a>' in text


def test_methods_have_one_name(runs: list[Run]) -> None:
    names, networks = ({getattr(run, key) for run in runs} for key in ("method", "network"))
    assert {"LayerNorm+residual", "residual", "DGN", "centered", "none"} <= names
    assert {"GCN", "GCNII", "JKNet", "DAGNN"} <= networks and not names & networks
    assert len({name.lower() for name in names | networks}) == len(names | networks)
    for run in runs:
        skips = {"backbone.residual=1", "backbone.residual=2", "backbone.skip=residual"}
        assert bool(skips & {*run.command.split()}) == ("residual" in run.method.split("+"))
        assert run.tables


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium")
def test_a_browser_filters_sorts_and_counts(tmp_path: Path, runs: list[Run]) -> None:
    write_runs(page := tmp_path / "runs.html", RESULTS, ("index.html", "Documentation"))
    of_table = [run for run in runs if "cures" in run.tables and run.data == "cora"]
    browser = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    for down, best_first in (("", True), ("&down=false", False)):
        expected = sorted((run.mean for run in of_table), reverse=best_first)
        address = f"file://{page}#table=cures&data=cora&sort=mean{down}"
        done = subprocess.run([*browser, address], capture_output=True, text=True, timeout=120)
        shown = re.findall(r'data-name="mean"[^>]*>([\d.]+)<', done.stdout)
        assert shown == [f"{mean:.2f}" for mean in expected]
        assert f"{len(expected)} of {len(runs)} runs" in done.stdout


def test_a_cell_of_the_study_has_its_metric_and_commands(tmp_path: Path) -> None:
    """Minesweeper is scored by ROC AUC; the column of its file keeps the name of the accuracy."""
    shutil.copytree(RESULTS / "expected", tmp_path / "expected")
    words = "backbone.dropout=0.2 backbone.adjacency=row backbone.hidden=32 backbone.init=glorot"
    place = f"Minesweeper,GCN,2,none,{words} trainer.lr=0.01"
    head = "graph,network,layers,method,candidate,seed,val_accuracy,test_accuracy,epoch,run\n"
    tried = place.replace("hidden=32", "hidden=64") + ",0,71.5,70.0,5,abcdef0123\n"
    lines = [f"{place},{seed},71.5,70.25,5,0123456789\n" for seed in range(2)]
    (tmp_path / "cures.csv").write_text("".join([head, tried, *lines]))
    [run] = recorded_runs(tmp_path)
    assert (run.metric, run.values) == ("test_roc_auc", {"0": 70.25, "1": 70.25})
    assert (run.tables, [*run.more]) == (("cures",), ["val_roc_auc"])
    config = compose_config(shlex.split(run.command)[2:])
    assert (config.backbone.depth, config.trainer.lr, [*config.seeds]) == (2, 0.01, [0, 1])
