"""The study of methods by depth: choice on validation nodes, statistics, runs and files."""

import importlib
import math
from argparse import Namespace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from oversmoothing.errors import InputError
from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.launch.command import source_problems
from oversmoothing.lab.papers import RESULTS
from oversmoothing.lab.papers.cures import compare, records, run
from oversmoothing.lab.papers.cures.records import Measured, Record
from oversmoothing.lab.papers.cures.study import Cell, Study, select, study
from oversmoothing.lab.papers.cures.write import summary, write_all
from oversmoothing.lab.store.identity import ids, run_id

main = importlib.import_module("oversmoothing.lab.papers.cures.main")
TINY = Study(
    common=["task=nodes", "trainer.epochs=2", "trainer.selection=best-val", "trainer.eval_every=1"],
    tuning=[0, 1],
    seeds=[0, 1, 2],
    graphs={"SBM": {"kind": "generated", "entries": 1, "overrides": ["data=sbm"]}},
    networks={"GCN": {"layers": [2], "overrides": ["backbone.hidden=4"]}},
    dropouts=[0.0, 0.5],
    methods={
        "none": {"overrides": [], "second": [["trainer.lr=0.01"]]},
        "centered": {"overrides": ["aggregator=centered"], "second": [["aggregator.gamma=-1"]]},
    },
)
CELL = Cell("SBM", "GCN", 2, "centered")


def record(candidate: str, seed: int, val: float, test: float, cell: Cell = CELL) -> Record:
    return Record(*cell, candidate, seed, val, test, 5, "0123456789")


def of_candidates(vals: list[float], tests: list[float], seeds: range) -> list[Record]:
    names = [" ".join(words) for words in TINY.candidates(CELL)]
    return [record(n, s, v, t) for n, v, t in zip(names, vals, tests) for s in seeds]


def test_validation_chooses_and_test_does_not() -> None:
    found = of_candidates([70.0, 60.0], [10.0, 99.0], range(3))
    [cell] = records.measured(TINY, found).values()
    assert cell.candidate == "backbone.dropout=0.0 aggregator.gamma=-1"
    assert cell.mean == 10.0


def test_only_tuning_seeds_choose() -> None:
    """Seeds that one candidate has and another lacks would decide by their own difficulty."""
    found = of_candidates([60.0, 61.0], [50.0, 51.0], range(2))
    names = [r.candidate for r in found]
    found += [record(names[0], 2, 100.0, 50.0), record(names[-1], 2, 0.0, 51.0)]
    [cell] = records.measured(TINY, found).values()
    assert cell.candidate == names[-1]


def test_a_cell_without_all_its_seeds_is_missing() -> None:
    assert not records.measured(TINY, of_candidates([60.0, 61.0], [50.0, 51.0], range(2)))
    assert not records.measured(TINY, of_candidates([60.0], [50.0], range(3)))


def test_comparisons_are_paired_and_corrected() -> None:
    rng = np.random.default_rng(0)
    base = CELL._replace(method="none")
    found = {}
    for layers in range(2, 12):
        for cell, shift in ((base, 0.0), (CELL, 5.0 if layers == 2 else 0.0)):
            values = dict(enumerate(rng.normal(shift, 1, 5)))
            found[cell._replace(layers=layers)] = Measured(cell, "", values, 0.0)
    compared = compare.compare(found)
    assert compared.keys() == {CELL._replace(layers=layers) for layers in range(2, 12)}
    ordered = sorted(compared.items(), key=lambda item: item[1].p)
    for cell, own in ordered:
        pair = [list(found[c].test.values()) for c in (cell, cell._replace(method="none"))]
        assert own.p == pytest.approx(ttest_rel(*pair).pvalue)
    # Benjamini and Hochberg: the smallest of p·m/rank over this and all larger p
    expected = [min(own.p * 10 / (k + 1) for k, (_, own) in enumerate(ordered) if k >= i)
                for i in range(10)]  # fmt: skip
    assert [own.adjusted for _, own in ordered] == pytest.approx(expected)


def test_a_single_seed_decides_nothing_and_corrects_no_other_comparison() -> None:
    base, single = CELL._replace(method="none"), CELL._replace(layers=3)
    found = {
        base: Measured(base, "", {0: 50.0, 1: 51.0}, 0.0),
        CELL: Measured(CELL, "", {0: 60.0, 1: 60.5}, 0.0),
        base._replace(layers=3): Measured(base, "", {0: 50.0}, 0.0),
        single: Measured(single, "", {0: 60.0}, 0.0),
    }
    compared = compare.compare(found)
    assert math.isnan(compared[single].p) and not compared[single].significant
    assert compared[CELL].adjusted == compared[CELL].p > 0


def test_a_measured_cell_is_not_run_again(tmp_path, monkeypatch) -> None:
    extra = [f"paths.outputs={tmp_path}", "logger=none"]
    found = run.run_cell(TINY, CELL, [], extra)
    path = records.write(tmp_path / "cures.csv", found)
    again = records.read(path)
    assert sorted(again) == sorted(found)
    assert records.measured(TINY, again).keys() == {CELL}
    monkeypatch.setattr(run, "attempt", None)  # calling it would raise
    assert sorted(run.run_cell(TINY, CELL, again, extra)) == sorted(found)


def test_a_cell_whose_process_dies_is_counted_as_failed(tmp_path, monkeypatch, capsys) -> None:
    def killed(call, tasks, jobs, died):
        return ((task, call(task) if task[1].layers else died(task)) for task in tasks)

    monkeypatch.setattr(main, "in_processes", killed)
    monkeypatch.setattr(main, "run_cell", lambda _, cell, *rest: [record("", 0, 1.0, 1.0, cell)])
    cells, options = [CELL._replace(layers=0), CELL], Namespace(jobs=2, overrides=[])
    assert main._run(TINY, cells, [], tmp_path / "cures.csv", options) == 1
    assert "error: SBM, GCN, 0, centered: its process died" in capsys.readouterr().err
    assert [r.cell for r in records.read(tmp_path / "cures.csv")] == [CELL]


def test_seeds_of_an_earlier_version_do_not_complete_a_cell(tmp_path, monkeypatch) -> None:
    """Its seeds would be merged with new ones, whose random numbers are others."""
    earlier = of_candidates([70.0, 60.0], [10.0, 99.0], range(2))
    assert run.today(TINY, earlier) == []
    monkeypatch.setattr(run, "attempt", lambda config, wait: "started")
    with pytest.raises(InputError, match="started"):
        run.run_cell(TINY, CELL, of_candidates([1.0] * 4, [1.0] * 4, range(3)), [])


def test_files_show_what_is_measured_and_the_command_of_what_is_not(tmp_path) -> None:
    found = of_candidates([70.0, 60.0], [10.0, 99.0], range(3))
    write_all(TINY, found, tmp_path / "results", pdf=False)
    table = (tmp_path / "results/tables/cures.md").read_text()
    assert "| centered | 10.0 ± 0.0 |" in table and "| none | missing |" in table
    assert TINY.cells()[0].command in table
    assert "1 of 2 cells are measured" in table


def test_committed_records_are_the_runs_of_the_study() -> None:
    """Every 200th line: its id is that of the command, today or in an earlier version."""
    found = records.read(RESULTS / "cures.csv")
    whole = study()
    for r in found[::200]:
        config = compose_config([*whole.words(r.cell, r.candidate.split()), "seeds=[0]"])
        assert r.run in ids(config)
    assert {r.cell for r in found} <= set(whole.cells())


def test_every_method_composes_in_every_network() -> None:
    whole = study()
    cells = {(c.network, c.method): c for c in whole.cells()}.values()
    configs = [compose_config(whole.words(cell, whole.candidates(cell)[-1])) for cell in cells]
    assert source_problems(configs) == []
    assert len({run_id(config) for config in configs}) == len(cells)
    assert {len(whole.candidates(cell)) for cell in cells} == {4}


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    with pytest.raises(InputError, match="no method 'residuals'; did you mean 'residual'"):
        select(study().cells(), methods=["residuals"])


def test_the_table_is_that_of_the_committed_records() -> None:
    """Fails when records or the study changed and `make cures` did not write the table."""
    whole = study()
    found = records.measured(whole, records.read(RESULTS / "cures.csv"))
    shown = summary(whole, found, compare.compare(found))
    assert shown in (RESULTS / "tables/cures.md").read_text("utf-8")
