"""Successive halving: survivors, hidden test labels, and resuming after a kill."""

from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Barrier

import pytest
import torch
from omegaconf import OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.launch.start import Start
from oversmoothing.lab.search.batch import DIVERGED, Batch, Member, Work, without_test
from oversmoothing.lab.search.cell import work_of
from oversmoothing.lab.search.halving import Search, best, divided, score
from oversmoothing.lab.search.plan import epochs
from oversmoothing.lab.search.side_by_side import threads
from oversmoothing.lab.search.space import Space, read_space

BASE = ["data=sbm", "data.num_nodes=310", "backbone.depth=2", "threads=1", "logger=none"]
BASE += ["trainer.selection=best-val", "trainer.eval_every=1", "aggregator=centered"]
COMMON = {
    "trainer.lr": [0.001, 0.01, 0.1],
    "backbone.hidden": [4, 8],
    "trainer.epochs": [6, 9],
    "aggregator.gamma": [-1.0, -0.5],
}
SPACE = Space(7, [2, 4], [10, 11], [0], COMMON, {}, [])


def work(graph: torch.Tensor | None = None) -> Work:
    own = [["trainer.epochs=9", "backbone.hidden=4"], *SPACE.drawn("centered")[1:]]
    configs = [compose_config([*BASE, *words]) for words in own]
    start = Start(configs[0])
    return Work(configs, start.task, without_test(graph or start.parts.data), start.device)


def test_the_better_half_goes_on_by_validation() -> None:
    search = Search(work(), SPACE.seeds, SPACE.rungs)
    winner = search.run()
    assert [len(rung) for rung in search.results] == [7, 4, 2]
    for before, after in zip(search.results, search.results[1:]):
        left = [score(before[trial]) for trial in before.keys() - after.keys()]
        assert min(score(before[trial]) for trial in after) >= max(left)
    final = search.results[-1]
    assert score(final[winner]) == max(map(score, final.values()))


def test_equals_go_by_their_number_and_a_diverged_seed_comes_last() -> None:
    rung = {4: [[50.0, 1]], 1: [[50.0, 3]], 2: [[90.0, 1], [DIVERGED, 2]], 3: [[1.0, 1]]}
    assert best(rung) == [1, 4, 3, 2]


def test_labels_of_test_nodes_change_nothing() -> None:
    graph = Start(compose_config(BASE)).parts.data
    hidden, seen = without_test(graph), graph.train | graph.val
    assert not hidden.test.any() and (hidden.y[~seen] == -1).all()
    assert torch.equal(work_of([compose_config(BASE)]).graph.y, hidden.y)
    y = graph.y.where(~graph.test, (graph.y + 1) % graph.num_classes)
    garbage = replace(graph, y=y)
    assert not torch.equal(garbage.y, graph.y)
    plain, other = (Search(work(g), SPACE.seeds, SPACE.rungs) for g in (graph, garbage))
    assert plain.run() == other.run()
    assert plain.results == other.results


@pytest.mark.parametrize("epochs", [3, 6, 10])
def test_a_search_that_was_killed_continues_bit_for_bit(
    epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Search(work(), SPACE.seeds, SPACE.rungs)
    whole.run()
    path, step, made = tmp_path / "checkpoint.pt", Batch._step, []

    def killed(self: Batch) -> torch.Tensor:
        made.append(1)
        if len(made) > epochs:
            raise KeyboardInterrupt
        return step(self)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Batch, "_step", killed)
        Search(work(), SPACE.seeds, SPACE.rungs, checkpoint=path, seconds=0).run()
    again = Search(work(), SPACE.seeds, SPACE.rungs, checkpoint=path)
    assert sum(batch.epoch for batch in again.batches) == epochs
    again.run()
    assert again.results == whole.results


def test_batches_side_by_side_give_the_results_of_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, path, step = work(), tmp_path / "checkpoint.pt", Batch._step
    alone = Search(own, SPACE.seeds, SPACE.rungs, most=4)
    alone.run()
    both, made, numbers = Barrier(2, timeout=60), set(), count(1)

    def meets(batch: Batch) -> torch.Tensor:
        if batch.epoch == 0 and batch in again.batches[:2]:
            both.wait()  # fails unless two batches are trained at the same time
        made.add(torch.get_num_threads())
        if next(numbers) == 7:
            raise KeyboardInterrupt
        return step(batch)

    with threads(2), monkeypatch.context() as patched:
        again = Search(own, SPACE.seeds, SPACE.rungs, most=4, checkpoint=path, seconds=0)
        patched.setattr(Batch, "_step", meets)
        with pytest.raises(KeyboardInterrupt):
            again.run()
        assert made == {1} and torch.get_num_threads() == 2
        patched.undo()
        resumed = Search(own, SPACE.seeds, SPACE.rungs, most=4, checkpoint=path)
        assert any(batch.epoch for batch in resumed.batches)
        resumed.run()
    assert resumed.results == alone.results


@pytest.mark.parametrize("rungs", [[], [2, 4]])
def test_every_network_is_trained_to_the_end_of_its_last_rung(
    rungs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, trained, step = work(), Counter(), Batch._step

    def counted(batch: Batch) -> torch.Tensor:
        trained.update(batch.members)
        return step(batch)

    monkeypatch.setattr(Batch, "_step", counted)
    search = Search(own, [10], rungs)
    search.run()
    for trial, config in enumerate(own.configs):
        reached = max(end for rung, end in zip(search.results, (*rungs, 9)) if trial in rung)
        assert trained[Member(trial, 10)] == min(reached, config.trainer.epochs)


def test_a_checkpoint_of_other_settings_is_not_continued(tmp_path: Path) -> None:
    own, path = work(), tmp_path / "checkpoint.pt"
    Search(own, SPACE.seeds, SPACE.rungs, checkpoint=path).run()
    assert Search(own, SPACE.seeds, SPACE.rungs, checkpoint=path).results
    for key, other in (("matmul", "medium"), ("trainer.lr", 0.05)):
        before = OmegaConf.select(own.configs[3], key)
        OmegaConf.update(own.configs[3], key, other)
        with pytest.warns(UserWarning, match=r"other settings.*kept as checkpoint\.other"):
            assert not Search(own, SPACE.seeds, SPACE.rungs, checkpoint=path).results
        OmegaConf.update(own.configs[3], key, before)
        path.with_suffix(".other").rename(path)
        assert Search(own, SPACE.seeds, SPACE.rungs, checkpoint=path).results


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trainer.eval_every=3"], r"nothing is evaluated in the first 2 epochs.*eval_every=3"),
        (["backbone=pyg"], "backbone: a batched search trains gcn, gcnii or jknet"),
        (["trainer=minibatch_random"], "trainer: a batched search trains on the full batch"),
        (["trainer.selection=last"], r"set trainer\.selection=best-val"),
    ],
)
def test_what_a_search_cannot_judge_is_refused(words: list[str], said: str) -> None:
    config = compose_config(
        [*BASE[:4], "trainer.selection=best-val", "trainer.eval_every=1", *words]
    )
    with pytest.raises(InputError, match=said):
        Search(work_of([config]), [10], [2, 4])


def test_batches_hold_networks_of_equal_shape() -> None:
    own = work()
    batches = [*divided(own, [10, 11], most=5)]
    assert sorted(m for batch in batches for m in batch) == sorted(
        (trial, seed) for trial in range(7) for seed in (10, 11)
    )
    assert max(map(len, batches)) == 4  # two configurations: seeds are not torn apart
    hidden = [{own.configs[m.trial].backbone.hidden for m in batch} for batch in batches]
    assert all(len(sizes) == 1 for sizes in hidden)


def test_the_plan_counts_the_epochs_of_a_search() -> None:
    configs = work().configs
    lengths = [config.trainer.epochs for config in configs]
    assert epochs(configs, []) == sum(lengths)
    assert epochs(configs, [2]) == pytest.approx(7 * 2 + (sum(lengths) - 7 * 2) / 2)


def test_every_value_is_drawn_about_equally_often() -> None:
    space = replace(SPACE, trials=25, methods={"other": {"aggregator.scale": [1, 2]}})
    drawn, other = space.drawn("centered"), space.drawn("other")
    assert drawn[0] == [] and len(drawn) == 25
    assert [words[:4] for words in other] == drawn
    for place, values in enumerate(COMMON.values()):
        counts = [[w[place].split("=")[1] for w in drawn[1:]].count(str(v)) for v in values]
        assert max(counts) - min(counts) <= 1


def test_keys_are_drawn_independently() -> None:
    drawn = replace(SPACE, trials=25).drawn("centered")[1:]
    for i, j in ((1, 2), (1, 3), (2, 3)):  # keys of two values each
        assert len({(words[i], words[j]) for words in drawn}) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trials: 3", "rungs: missing"),
        ("trials: [", "cannot be read"),
        ("trials: many", "trials: expected a whole number"),
        ("final_seeds: [7, 10]", r"final_seeds: \{10\} are seeds of the search"),
        ("rungs: [4, 2]", "rungs: expected epochs in rising order"),
        ("seeds: [7, 7]", r"seeds: expected one or more seeds, each once, got \[7, 7\]"),
        ("final_seeds: []", "final_seeds: expected one or more seeds"),
    ],
)
def test_a_bad_space_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    lines = {key: f"{key}: {value!r}" for key, value in vars(SPACE).items()}
    lines[text.split(":")[0]] = text
    path.write_text(text if text == "trials: 3" else "\n".join(lines.values()))
    with pytest.raises(InputError, match=said) as error:
        read_space(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize(
    "values, said",
    [
        ({"common": {"backbone.dropout": []}}, r"^common: backbone\.dropout: expected a list"),
        ({"common": {"backbone.init": "glorot"}}, r"got 'glorot'"),
        ({"methods": {"x": {"trainer.lr": 0.1}}}, r"^x: trainer\.lr: expected a list of values"),
        ({"methods": {"x": None}}, r"^x: expected keys of the config"),
    ],
)
def test_a_space_without_lists_is_refused(values: dict, said: str) -> None:
    given = {"trials": 3, "rungs": [], "seeds": [0], "final_seeds": [1], "overrides": []}
    with pytest.raises(InputError, match=said):
        Space(**given, **{"common": {}, "methods": {}} | values)


def test_null_is_drawn_as_hydra_reads_it() -> None:
    given = {"trials": 3, "rungs": [], "seeds": [0], "final_seeds": [1], "overrides": []}
    space = Space(**given, common={"aggregator.negatives": [None, 8]}, methods={})
    words = {word for drawn in space.drawn("x") for word in drawn}
    assert words == {"aggregator.negatives=null", "aggregator.negatives=8"}
