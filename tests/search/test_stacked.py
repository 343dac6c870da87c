"""Networks with settings of their own train in a stack as they train alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from listening import Listening
from omegaconf import DictConfig

from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import Start
from oversmoothing.lab.search.stacked import DIVERGED, Member, Stack, Work, shape, without_test
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import Job

BASE = ["data=sbm", "data.num_nodes=310", "backbone.depth=4", "backbone.hidden=8", "threads=1"]
BASE += ["trainer.selection=best-val", "trainer.eval_every=2", "trainer.epochs=6", "logger=none"]
METHODS = {
    "centered": ["aggregator=centered", "aggregator@then=layernorm"],
    "contranorm": ["aggregator=contranorm", "aggregator@then=layernorm"],
    "pairnorm": ["aggregator=pairnorm", "aggregator.mode=PN-SI"],
    "gcnii": ["backbone=gcnii", "trainer.dense_weight_decay=0.1"],
    "gprgnn": ["backbone=gprgnn", "trainer.dense_weight_decay=0.1"],
    "graphcon": ["backbone=graphcon"],
    "g2": ["backbone=g2"],
}
OWN = {  # two settings of each method
    "centered": ("aggregator.gamma=-1", "aggregator.gamma=-0.25"),
    "contranorm": ("aggregator.scale=0.2", "aggregator.scale=2.0"),
    "pairnorm": ("aggregator.scale=0.5", "aggregator.scale=5.0"),
    "gcnii": ("backbone.alpha=0.5", "backbone.lam=1.5"),
    "gprgnn": ("backbone.alpha=0.1", "backbone.alpha=0.5"),
    "graphcon": ("backbone.dt=0.25", "backbone.gamma=0.5"),
    "g2": ("backbone.p=1", "backbone.p=2.5"),
}
FIRST = ["trainer.lr=0.05", "trainer.weight_decay=0.01", "backbone.dropout=0.0"]
SECOND = ["trainer.lr=0.002", "backbone.dropout=0.7"]


@pytest.fixture
def double() -> Iterator[None]:
    Start(compose_config(BASE))  # keeps the graph, in single precision
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def two(method: str, *more: str) -> list[DictConfig]:
    rates = (FIRST, SECOND)
    words = [[*METHODS[method], *BASE, *own, one, *more] for own, one in zip(rates, OWN[method])]
    return [compose_config(own) for own in words]


def work(configs: list[DictConfig]) -> Work:
    start = Start(configs[0])
    graph = without_test(start.parts.data)
    x = graph.x.to(torch.get_default_dtype())
    return Work(configs, start.task, type(graph)(**{**vars(graph), "x": x}), start.device)


def weights(stack: Stack, i: int) -> torch.Tensor:
    """All parameters of one network of a stack that have a copy for each."""
    return torch.cat([p[i].flatten() for p in stack.model.parameters() if p.dim() > 1])


@pytest.mark.parametrize("method", METHODS)
def test_a_stack_of_settings_equals_each_alone(method: str, double: None) -> None:
    configs = two(method)
    assert shape(configs[0]) == shape(configs[1])
    members = [Member(0, 5), Member(1, 5), Member(1, 6)]
    shared = work(configs)
    together = Stack(shared, members)
    together.train(3)
    for i, member in enumerate(members):
        alone = Stack(shared, [member])
        alone.train(3)
        assert (weights(together, i) - weights(alone, 0)).abs().max() < 1e-10
    together.keep(members[1:])
    together.train(5)
    alone = Stack(shared, members[2:])
    alone.train(5)
    assert (weights(together, 1) - weights(alone, 0)).abs().max() < 1e-10
    assert together.score(members[2]) == pytest.approx(alone.score(members[2]))


def test_dropout_in_an_aggregator_does_not_depend_on_the_global_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_dropped.py").write_text(
        "from torch import nn\nfrom oversmoothing.aggregators.base import After\n\n\n"
        "class Own(After):\n    def __init__(self):\n        super().__init__()\n"
        "        self.dropout = nn.Dropout(0.5)\n\n"
        "    def forward(self, x, context):\n        return self.dropout(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = ["+aggregator._partial_=true", "aggregator._target_=own_dropped.Own"]
    shared = work([compose_config([*BASE, *own])])
    found = []
    for _ in "12":
        stack = Stack(shared, [Member(0, 5)])
        torch.rand(1)
        stack.train(3)
        found.append(weights(stack, 0))
    assert torch.equal(*found)


def test_aggregators_hear_of_every_step_before_and_after_it() -> None:
    stack = Stack(work(two("centered")), [Member(0, 5), Member(1, 5)])
    stack.model.own = Listening()
    stack.train(2)
    assert stack.model.own.heard == ["before 0", "after", "before 1", "after"]


@pytest.mark.parametrize(
    ("method", "more"),
    [
        *((method, []) for method in METHODS),
        ("pairnorm", ["trainer.eval_every=50"]),
        ("centered", ["aggregator.warmup=4"]),
    ],
)
def test_a_search_scores_what_an_ordinary_run_reports(
    method: str, more: list[str], tmp_path: Path
) -> None:
    configs = two(method, *more)
    configs[0].trainer.epochs = 3  # its last evaluation is none of the other's
    stack = Stack(work(configs), [Member(0, 3), Member(1, 3), Member(0, 4), Member(1, 4)])
    stack.train(6)
    assert not stack.members  # each has reached its last epoch
    for trial, config in enumerate(configs):
        start = Start(config)
        recorder = Recorder(tmp_path / str(trial), [3, 4], 30.0)
        job = Job(start.parts, [3, 4], recorder, start.device)
        for seed, result in start.task.run(start.network([3, 4]), job).items():
            found = [result["epoch"], result["val_accuracy"]]
            assert stack.score(Member(trial, seed)) == pytest.approx(found)


def test_shapes_differ_where_networks_cannot_share_a_stack() -> None:
    plain, *others = (
        compose_config([*METHODS["contranorm"], *BASE, *more])
        for more in (
            [],
            ["backbone.hidden=16"],
            ["aggregator.temperature=2"],
            ["data.seed=1"],
            ["trainer.eval_every=3"],
        )
    )
    assert shape(plain) not in map(shape, others)
    assert shape(compose_config([*METHODS["contranorm"], *BASE, *FIRST])) == shape(plain)
    own = [*METHODS["contranorm"], *BASE, "aggregator.negatives=5"]  # an instance for each network
    first, second = (compose_config([*own, one]) for one in OWN["contranorm"])
    assert shape(first) != shape(second)
    Stack(work([first]), [Member(0, 5), Member(0, 6)]).train(1)


def test_a_network_that_diverges_leaves_and_the_others_do_not_notice() -> None:
    configs = two("centered", "aggregator@then=none")
    configs[0].trainer.lr = 1e30
    shared, members = work(configs), [Member(0, 1), Member(1, 1)]
    stack, alone = Stack(shared, members), Stack(shared, members[1:])
    stack.train(4)
    assert stack.members == members[1:]
    stack.train(6)
    alone.train(6)
    assert stack.score(members[0])[1] == DIVERGED
    assert stack.score(members[1]) == pytest.approx(alone.score(members[1]))
