"""The study of methods by depth: choice on validation nodes, statistics, runs and files."""

import math
import pickle
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock, Timeout
from scipy.stats import ttest_1samp, ttest_rel

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import name_problems
from oversmoothing.lab.papers import RESULTS, cures, cures_cells, cures_figures, cures_page
from oversmoothing.lab.papers.cures_cells import Place, Record, study
from oversmoothing.lab.report.tables import load
from oversmoothing.lab.report.verdict import Measured
from oversmoothing.lab.store.identity import ids, run_id

TABLE = """
tables:
  tiny:
    title: Tiny
    source: here
    ours: true
    unit: "%"
    experiment: gnn_cures
    metric: test_accuracy
    overrides: [backbone.hidden=4, trainer.epochs=2, trainer.eval_every=1, "seeds=[0,1,2]"]
    tuning_seeds: [0, 1]
    candidates: [[backbone.dropout=0.0], [backbone.dropout=0.5]]
    columns: {L=2: [backbone.depth=2]}
    rows:
      none: {candidates: [[trainer.lr=0.01]]}
      centered: {overrides: [aggregator=centered], candidates: [[aggregator.gamma=-1]]}
    blocks: {SBM: {group: generated, overrides: [data=sbm]}}
    readings: [{label: GCN}]
"""
PLACE = Place("SBM", "GCN", 2, "centered")
NAMES = [f"backbone.dropout={rate} aggregator.gamma=-1" for rate in ("0.0", "0.5")]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> cures_cells.Study:
    path = tmp_path_factory.mktemp("expected") / "tiny.yaml"
    path.write_text(TABLE)
    return {PLACE._replace(method=cell.key): cell for cell in load(path, chosen=True)}


def record(candidate: str, seed: int, val: float, test: float, place: Place = PLACE) -> Record:
    return Record(*place, candidate, seed, val, test, 5, "0123456789")


def of_candidates(
    vals: Sequence[float], tests: Sequence[float], seeds: Sequence[int] = range(3)
) -> list[Record]:
    return [record(n, s, v, t) for n, v, t in zip(NAMES, vals, tests) for s in seeds]


def accuracy(values: Sequence[float]) -> tuple[str, Measured]:
    return "", Measured(tuple(values), "", 0.0, tuple(range(len(values))))


def test_validation_chooses_and_test_does_not(tiny: cures_cells.Study) -> None:
    [(name, own)] = cures_cells.measure(tiny, of_candidates([70.0, 60.0], [10.0, 99.0])).values()
    assert (name, own.mean) == (NAMES[0], 10.0)


def test_only_tuning_seeds_choose(tiny: cures_cells.Study) -> None:
    """Seeds that one candidate has and another lacks would decide by their own difficulty."""
    found = of_candidates([60.0, 61.0], [50.0, 51.0], range(2))
    found += [record(NAMES[0], 2, 100.0, 50.0), record(NAMES[1], 2, 0.0, 51.0)]
    [(name, _)] = cures_cells.measure(tiny, found).values()
    assert name == NAMES[1]


def test_a_cell_without_all_its_seeds_is_missing(tiny: cures_cells.Study) -> None:
    assert not cures_cells.measure(tiny, of_candidates([60.0, 61.0], [50.0, 51.0], range(2)))
    assert not cures_cells.measure(tiny, of_candidates([60.0], [50.0]))


def test_comparisons_are_paired_and_corrected() -> None:
    rng, found = np.random.default_rng(0), {}
    for layers in range(2, 12):
        for method, shift in (("none", 0.0), ("centered", 5.0 if layers == 2 else 0.0)):
            place = PLACE._replace(layers=layers, method=method)
            found[place] = accuracy(rng.normal(shift, 1, 5))
    compared = cures_page.compare(found)
    assert compared.keys() == {PLACE._replace(layers=layers) for layers in range(2, 12)}
    ordered = sorted(compared.items(), key=lambda item: item[1].p)
    for place, own in ordered:
        pair = [found[c][1].values for c in (place, place._replace(method="none"))]
        assert own.p == pytest.approx(ttest_rel(*pair).pvalue)
    # Benjamini and Hochberg: the smallest of p·m/rank over this and all larger p
    expected = [min(own.p * 10 / (k + 1) for k, (_, own) in enumerate(ordered) if k >= i)
                for i in range(10)]  # fmt: skip
    assert [own.adjusted for _, own in ordered] == pytest.approx(expected)


def test_a_method_is_compared_over_graphs_each_of_which_counts_once() -> None:
    """n is the number of graphs, as in a mixed model with a random effect of the graph."""
    differences = [1.0, 2.0, 4.0, -1.0, 3.0, 2.5]
    compared = {}
    for graph, difference in enumerate(differences):
        for layers in (2, 8):
            place = PLACE._replace(graph=f"G{graph}", layers=layers)
            shift = difference if layers == 2 else 10 + difference
            compared[place] = cures_page.Comparison(shift, 0.5, 0.5)
            compared[place._replace(network="GAT")] = cures_page.Comparison(99.0, 0.0, 0.0)
    few = {PLACE._replace(layers=32, graph=f"G{n}"): own for n, own in enumerate(compared.values())}
    few = dict([*few.items()][:5])
    pooled = cures_page.pool(compared | few, "GCN")
    p = [ttest_1samp(differences, 0).pvalue, ttest_1samp(np.add(differences, 10), 0).pvalue]
    shallow, deep, untested = (pooled["centered", layers] for layers in (2, 8, 32))
    assert shallow.graphs == 6
    assert shallow.difference == pytest.approx(np.mean(differences))
    assert [shallow.p, deep.p] == pytest.approx(p)
    assert [shallow.adjusted, deep.adjusted] == pytest.approx([p[0], 2 * p[1]])
    assert math.isnan(untested.p) and math.isnan(untested.adjusted)


def test_a_single_seed_decides_nothing_and_corrects_no_other_comparison() -> None:
    base, single = PLACE._replace(method="none"), PLACE._replace(layers=3)
    found = {base: accuracy([50.0, 51.0]), PLACE: accuracy([60.0, 60.5])}
    found |= {base._replace(layers=3): accuracy([50.0]), single: accuracy([60.0])}
    compared = cures_page.compare(found)
    assert math.isnan(compared[single].p) and not compared[single].significant
    assert compared[PLACE].adjusted == compared[PLACE].p > 0


def test_recorded_seeds_are_not_run_again(
    tiny: cures_cells.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = tiny[PLACE]
    found = cures_cells.run_cell(PLACE, cell, [], [f"paths.outputs={tmp_path / 'a'}"])
    cures_cells.add(tmp_path / "cures.csv", found)
    again = cures_cells.read(tmp_path / "cures.csv")
    assert sorted(again) == sorted(found)
    assert cures_cells.measure(tiny, again).keys() == {PLACE}
    elsewhere = [f"paths.outputs={tmp_path / 'b'}"]
    without = [r for r in again if r.seed != 2]
    assert sorted(cures_cells.run_cell(PLACE, cell, without, elsewhere)) == sorted(found)
    monkeypatch.setattr("oversmoothing.lab.launch.command.attempt", None)  # would raise
    assert sorted(cures_cells.run_cell(PLACE, cell, again, elsewhere)) == sorted(found)


def test_records_that_are_added_at_once_are_all_kept(tmp_path: Path) -> None:
    """Threads stand for processes: each opens the file of the lock for itself."""
    path, each = tmp_path / "cures.csv", [[record("", seed, 1.0, 1.0)] for seed in range(40)]
    with ThreadPoolExecutor(4) as threads:
        [*threads.map(cures_cells.add, [path] * len(each), each)]
    assert cures_cells.read(path) == sum(each, [])


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_cell_does_not_stop_the_others(
    jobs: int, tiny: cures_cells.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_cell(place: Place, *_: object) -> list[Record]:
        if place.method == "none":
            raise InputError("out of memory")
        return [record("", 0, 1.0, 1.0, place)]

    def in_processes(call, items, jobs, died):
        return ((item, call(item)) for item in pickle.loads(pickle.dumps(items)))

    monkeypatch.setattr(cures, "run_cell", run_cell)
    monkeypatch.setattr(cures, "in_processes", in_processes)
    options = Namespace(jobs=jobs, overrides=[])
    assert cures._run_cells(tiny, [*tiny], tmp_path / "cures.csv", options) == 1
    assert [r.place for r in cures_cells.read(tmp_path / "cures.csv")] == [PLACE]


def test_missing_data_are_one_line_and_not_one_for_each_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    place = Place("Cora", "GCN", 2, "none")
    with pytest.raises(InputError, match="Cora") as refused:
        cures_cells.run_cell(place, study()[place], [], [f"paths.data={tmp_path}"])
    assert len(refused.value.lines) == 1


def test_seeds_of_an_earlier_version_do_not_complete_a_cell(
    tiny: cures_cells.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seeds would be merged with new ones, whose random numbers are others."""
    assert cures_cells.today(tiny, of_candidates([70.0, 60.0], [10.0, 99.0], range(2))) == []
    monkeypatch.setattr(cures_cells, "run_all", lambda configs: ["started"])
    with pytest.raises(InputError, match="1 of 2"):  # runs were started
        cures_cells.run_cell(PLACE, tiny[PLACE], of_candidates([1.0] * 2, [1.0] * 2), [])


def test_files_show_what_is_measured(tiny: cures_cells.Study, tmp_path: Path) -> None:
    found = of_candidates([70.0, 60.0], [10.0, 99.0])
    cures.write_all(tiny, found, tmp_path / "results", pdf=False)
    table = (tmp_path / "results/tables/cures.md").read_text()
    assert "| centered | 10.0 ± 0.0 |" in table and "Not measured on any graph: none." in table
    assert "1 of 2 cells are measured; `oversmoothing figure cures --plan`" in table
    for records in ([], found):  # of a part, tables without rows are left out
        shown = cures_page.page(study(), records, cures_cells.measure(study(), records))
        assert "--- |\n\n" not in shown and "none: accuracy" not in shown


def test_the_figure_of_a_part_needs_no_baseline() -> None:
    own = [p for p in study() if (p.graph, p.method) == ("Cora", "GCNII")]
    figure = cures_figures.draw_depths(study(), {place: accuracy([1.0, 2.0]) for place in own})
    assert [axis.get_title() for axis in figure.axes] == ["Cora, best with 32 layers:\nGCNII 1.5"]


def test_the_title_compares_methods_over_the_same_graphs() -> None:
    """JKNet gains most, but on Cora alone."""
    means = {"none": 30.0, "GCNII": 80.0, "residual": 60.0, "JKNet": 99.0}
    places = [p for p in study() if p.layers == 32 and p.graph in ("Cora", "CiteSeer")]
    found = {p: accuracy([means[p.method]] * 2) for p in places if p.method in means}
    del found[Place("CiteSeer", "GCN", 32, "JKNet")]
    title = cures_figures.draw(study(), cures_page.compare(found)).get_suptitle()
    assert "GCNII" in title and "residual" in title and "JKNet" not in title


def test_equal_candidates_count_for_neither_value_of_an_option() -> None:
    assert cures_page._counted([1e-14, -1.0, 1.0]).endswith("(1\u00a0of\u00a03)")


def test_depths_that_a_graph_does_not_have_are_not_missing() -> None:
    """32 layers run on three graphs, too few for a test over graphs."""
    whole = study()
    found = {place: accuracy([n / 7 % 1, n / 5 % 1]) for n, place in enumerate(whole)}
    compared = cures_page.compare(found)
    text = cures_page.summary(whole, found, compared)
    assert len(whole) == 300 and text.endswith("300 of 300 cells are measured.")
    assert "missing" not in text + cures_page._every_graph(whole, found, compared)
    assert "| all graphs | L = 2 | L = 8 |\n" in text
    assert cures_cells.today(whole, [record("", 0, 1.0, 1.0)]) == []


def test_only_what_is_asked_for_is_printed(tmp_path: Path, capsys, monkeypatch) -> None:
    """What is written is the file, to which no other study adds meanwhile."""

    def write_all(whole: cures_cells.Study, records: list[Record], results: Path, _: bool) -> list:
        with pytest.raises(Timeout):
            FileLock(results / ".lock").acquire(timeout=0)
        return [] if records == cures_cells.read(results / "cures.csv") else ["other records"]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cures, "write_all", write_all)
    asked = "--graphs Cora --networks GCN --layers 2 32 --methods none GCNII --draw"
    assert cures.main(asked.split()) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    cells = [line.split("|")[1].strip() for line in lines]
    assert cells == ["GCN, Cora", "---", "none", "GCNII"] and lines[0].count("L = ") == 2


def test_committed_records_are_the_runs_of_the_study() -> None:
    """Every 200th line: its id is that of the command, today or in an earlier version."""
    found = cures_cells.read(RESULTS / "cures.csv")
    for r in found[::200]:
        assert r.run in ids(cures_cells.config_of(study()[r.place], r.candidate.split()))
    assert {r.place for r in found} <= study().keys()


def test_every_method_composes_and_has_the_same_budget() -> None:
    cells = {(p.network, p.method): cell for p, cell in study().items()}.values()
    configs = [cures_cells.config_of(cell, cell.candidates[-1]) for cell in cells]
    assert name_problems(configs) == []
    assert len({run_id(config) for config in configs}) == len(cells)
    assert {len(cell.candidates) for cell in cells} == {16}


def test_what_an_option_adds_is_not_that_of_another() -> None:
    """The candidates are balanced: each two options have all four pairs of values equally often."""
    place, cell = next(iter(study().items()))
    added = {"backbone.init=orthogonal": 5.0, "backbone.hidden=64": -1.0, "trainer.lr=0.002": 40.0}
    runs = {
        " ".join(words): [record("", 0, 50 + sum(added.get(w, 0) for w in words), 0.0, place)]
        for words in cell.candidates
    }
    expected = {"init=orthogonal`, not glorot": 5, "hidden=64`, not 32": -1,
                "adjacency=symmetric`, not row": 0, "dropout=0.6`, not 0.2": 0}  # fmt: skip
    found = cures_page.effects(cell, runs)
    assert found == pytest.approx({f"`backbone.{name}": of for name, of in expected.items()})


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    with pytest.raises(InputError, match="no method 'residuals'; did you mean 'residual'"):
        cures_cells.select(study(), method=["residuals"])


def test_the_table_is_that_of_the_committed_records() -> None:
    """Fails when records or the study changed and `make cures` did not write the table."""
    found = cures_cells.measure(study(), cures_cells.read(RESULTS / "cures.csv"))
    shown = cures_page.summary(study(), found, cures_page.compare(found))
    assert shown in (RESULTS / "tables/cures.md").read_text("utf-8")
