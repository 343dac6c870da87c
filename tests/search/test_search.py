"""Successive halving: survivors, hidden test labels, and a search that continues after a kill."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start
from oversmoothing.lab.search.files import Space, read_space, words_of
from oversmoothing.lab.search.search import CellSearch, Search, mean, work_of
from oversmoothing.lab.search.stacked import DIVERGED, Member, Stack, Work, without_test
from oversmoothing.lab.tasks.nodes import Update

BASE = ["data=sbm", "data.num_nodes=310", "backbone.depth=2", "threads=1", "logger=none"]
BASE += ["trainer.selection=best-val", "trainer.eval_every=1", "aggregator=centered"]
COMMON = {
    "trainer.lr": [0.001, 0.01, 0.1],
    "backbone.hidden": [4, 8],
    "trainer.epochs": [6, 9],
    "aggregator.gamma": [-1.0, -0.5],
}
SPACE = Space(trials=7, rungs=[2, 4], seeds=[10, 11], final_seeds=[0], common=COMMON)


def work(graph: Graph | None = None) -> Work:
    drawn = [words_of(settings) for settings in SPACE.drawn("centered")[1:]]
    own = [["trainer.epochs=9", "backbone.hidden=4"], *drawn]
    configs = [compose_config([*BASE, *words]) for words in own]
    start = Start(configs[0])
    return Work(configs, start.task, without_test(graph or start.parts.data), start.device)


def search(own: Work, folder: Path | None = None, **options) -> Search:
    return Search(own, SPACE, folder, **options)


def test_the_better_half_goes_on_and_the_best_of_them_wins() -> None:
    own = search(work())
    winner = own.run()
    assert [len(rung) for rung in own.results] == [7, 4, 2]
    for before, after in zip(own.results, own.results[1:]):
        left = [mean(before[trial]) for trial in before.keys() - after.keys()]
        assert min(mean(before[trial]) for trial in after) >= max(left)
    final = own.results[-1]
    assert mean(final[winner]) == max(map(mean, final.values()))


def test_equals_go_by_their_number_and_a_diverged_seed_comes_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixed = {0: [50.0, DIVERGED], 1: [90.0, 90.0], 2: [80.0, 80.0], 3: [1.0, 1.0]}
    monkeypatch.setattr(Stack, "train", lambda stack, until, tick: None)
    monkeypatch.setattr(Search, "_scores", lambda _, t, until: fixed.get(t, [80.0, 80.0]))
    own = search(work())
    assert own.run() == 1
    assert [[*rung] for rung in own.results[1:]] == [[1, 2, 4, 5], [1, 2]]


def test_a_search_that_only_diverges_names_the_learning_rate() -> None:
    own = work()
    for config in own.configs:
        config.trainer.lr = 1e30
    with pytest.raises(InputError, match=r"trainer\.lr"):
        search(own).run()


def test_labels_of_test_nodes_change_nothing() -> None:
    graph = Start(compose_config(BASE)).parts.data
    hidden, seen = without_test(graph), graph.train | graph.val
    assert not hidden.test.any() and (hidden.y[~seen] == -1).all()
    assert torch.equal(work_of([compose_config(BASE)]).graph.y, hidden.y)
    garbage = replace(graph, y=graph.y.where(~graph.test, (graph.y + 1) % graph.num_classes))
    assert not torch.equal(garbage.y, graph.y)
    plain, other = (search(work(own)) for own in (graph, garbage))
    assert plain.run() == other.run()
    assert plain.results == other.results


@pytest.mark.parametrize("steps", [3, 6, 11])
def test_a_killed_search_continues_bit_for_bit(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, step, made = work(), Update.__call__, []

    def counted(*given: object) -> torch.Tensor:
        made.append(1)
        return step(*given)

    def killed(*given: object) -> torch.Tensor:
        if len(made) == steps:
            raise KeyboardInterrupt
        return counted(*given)

    monkeypatch.setattr(Update, "__call__", counted)
    whole = search(own)
    winner, number = whole.run(), len(made)
    made.clear()
    monkeypatch.setattr(Update, "__call__", killed)
    with pytest.raises(KeyboardInterrupt):
        search(own, tmp_path, seconds=0).run()
    monkeypatch.setattr(Update, "__call__", counted)
    again = search(own, tmp_path)
    assert again.run() == winner and again.results == whole.results
    assert len(made) == number == 12
    again.remove_state()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("rungs", [[], [2, 4]])
def test_every_network_is_trained_to_the_end_of_its_last_rung(
    rungs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, trained, step = work(), Counter(), Update.__call__

    def counted(update: Update, epoch: int) -> torch.Tensor:
        trained.update(next(s.members for s in halved.stacks if s.members and s.update is update))
        return step(update, epoch)

    monkeypatch.setattr(Update, "__call__", counted)
    halved = Search(own, SPACE.model_copy(update={"rungs": rungs}))
    halved.run()
    for trial, config in enumerate(own.configs):
        reached = max(end for rung, end in zip(halved.results, (*rungs, 9)) if trial in rung)
        assert trained[Member(trial, 10)] == min(reached, config.trainer.epochs)


@pytest.mark.parametrize(("key", "other"), [("matmul", "medium"), ("trainer.lr", 0.05)])
def test_the_state_of_other_settings_is_not_continued(
    key: str, other: object, tmp_path: Path
) -> None:
    own = work()
    search(own, tmp_path).run()
    assert all(stack.epoch for stack in search(own, tmp_path).stacks)
    moved = replace(own, graph=replace(own.graph, checksum="of other data"))
    assert not any(stack.epoch for stack in search(moved, tmp_path).stacks)
    OmegaConf.update(own.configs[3], key, other)
    assert not any(stack.epoch for stack in search(own, tmp_path).stacks)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["trainer.eval_every=3"], "rungs"),
        (["backbone=pyg"], "backbone"),
        (["trainer=minibatch_random"], "trainer"),
        (["trainer.selection=last"], "trainer"),
    ],
)
def test_what_a_search_cannot_judge_is_refused(words: list[str], key: str, tmp_path: Path) -> None:
    settings = ("trainer.selection=best-val", "trainer.eval_every=1", *words)
    space = SPACE.model_copy(update={"trials": 1})
    cell = ("table", "", "none", "L=2", (*BASE[:4], *settings), space)
    with pytest.raises(InputError, match=f"^{key}: "):
        CellSearch(*cell, tmp_path).configs()


def test_values_are_drawn_about_equally_often_and_independently() -> None:
    methods = {"other": {"aggregator.scale": [1, 2]}}
    space = SPACE.model_copy(update={"trials": 25, "methods": methods})
    drawn, other = space.drawn("centered"), space.drawn("other")
    assert drawn[0] == {} and len(drawn) == 25
    assert [{key: own[key] for key in COMMON} for own in other[1:]] == drawn[1:]
    for key, values in COMMON.items():
        counts = Counter(own[key] for own in drawn[1:])
        assert counts.keys() == {*values} and max(counts.values()) - min(counts.values()) <= 1
    two = [key for key, values in COMMON.items() if len(values) == 2]
    for first, second in zip(two, two[1:]):
        assert len({(own[first], own[second]) for own in drawn[1:]}) == 4


def test_null_is_drawn_as_hydra_reads_it() -> None:
    space = SPACE.model_copy(update={"common": {"aggregator.negatives": [None, 8]}})
    words = {word for drawn in space.drawn("x") for word in words_of(drawn)}
    assert words == {"aggregator.negatives=null", "aggregator.negatives=8"}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("trials: 0", "trials"),
        ("trials: many", "trials"),
        ("trials: [", "cannot be read"),
        ("trails: 3", "trails"),
        ("final_seeds: [7, 10]", "final_seeds"),
        ("final_seeds: []", "final_seeds"),
        ("seeds: [7, 7]", "seeds"),
        ("rungs: [4, 2]", "rungs"),
        ("common: {backbone.dropout: []}", "backbone.dropout"),
        ("common: {backbone.init: glorot}", "backbone.init"),
        ("methods: {x: null}", "methods: x"),
        ("", ""),
    ],
)
def test_a_bad_space_is_one_line(change: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    lines = {name: f"{name}: {value!r}" for name, value in SPACE.model_dump().items()}
    lines[change.split(":")[0]] = change
    path.write_text("\n".join(lines.values()) if change else "")
    with pytest.raises(InputError) as error:
        read_space(path)
    said = str(error.value)
    assert said.startswith(f"{path}: ") and key in said and "\n" not in said
