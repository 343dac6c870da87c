"""A graph that does not fit into memory is refused before anything large is built."""

import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.pyg import Networks
from oversmoothing.lab.data import csbm
from oversmoothing.lab.store.free_memory import free_memory, left_in_groups
from oversmoothing.lab.tasks.base import Parts
from oversmoothing.lab.tasks.nodes import memory
from oversmoothing.lab.tasks.nodes.task import Nodes

CPU = torch.device("cpu")
GRAPH = csbm.generate(num_nodes=2000, features=8)


def refuse(*args: object, **kwargs: object) -> None:
    raise AssertionError("something was built")


def needed(num_seeds: int = 1, **options: object) -> int:
    return memory.estimate(GRAPH, partial(GCN, **options), [LayerNorm], num_seeds)


@pytest.mark.parametrize("num_seeds, others", [(1, ""), (3, "one needs")])
def test_one_line_says_what_is_needed_what_is_free_and_the_ways_out(
    monkeypatch: pytest.MonkeyPatch, num_seeds: int, others: str
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: 2**20)
    backbone = partial(GCN, depth=8)
    monkeypatch.setattr(GCN, "__init__", refuse)
    with pytest.raises(
        InputError, match=r"2,000 nodes .* needs about .* GiB, and 0.000977 GiB"
    ) as e:
        Nodes().network(Parts([LayerNorm], backbone, data=GRAPH), list(range(num_seeds)), CPU)
    (line,) = e.value.lines
    for way in ("backbone.hidden", "backbone.depth", "trainer=minibatch_cluster", others):
        assert way in line


def test_between_half_and_all_of_the_estimate_a_warning_says_the_same(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    free = {"bytes": int(0.6 * needed())}
    monkeypatch.setattr(memory, "free_memory", lambda device: free["bytes"])
    check = partial(memory.require_memory, GRAPH, GCN, [LayerNorm], 1, CPU)
    with pytest.warns(UserWarning, match="needs about"):
        check()
    free["bytes"] = needed()
    recwarn.clear()
    check()
    assert not recwarn.list


def test_the_estimate_grows_with_what_it_depends_on() -> None:
    """Linearly in seeds, depth and channels as far as activations go."""
    assert needed(3) - needed(2) == pytest.approx(needed(2) - needed(1), abs=2)
    layers = [needed(depth=depth, hidden=32) for depth in (2, 3, 4)]
    activations = 4 * 11 * 2000 * 32
    for more in (layers[1] - layers[0], layers[2] - layers[1]):
        assert activations <= more < 1.2 * activations
    assert needed(hidden=64) > needed(hidden=32)
    plain, several = ([NoAggregator], [LayerNorm, NoAggregator, LayerNorm])
    assert (
        memory.estimate(GRAPH, GCN, plain, 1) < needed() < memory.estimate(GRAPH, GCN, several, 1)
    )
    gcn, gat = (
        memory.estimate(GRAPH, partial(Networks, conv=c), [], 1) for c in ("GCNConv", "GATConv")
    )
    assert memory.estimate(GRAPH, GCN, [], 1) < gcn < gat


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_free_memory_is_what_the_kernel_counts() -> None:
    total = 1024 * int(Path("/proc/meminfo").read_text("utf-8").split()[1])
    assert 0 < free_memory(CPU) <= total
    assert free_memory(torch.device("meta")) is None


@pytest.mark.parametrize(
    "line, folder, names",
    [
        ("0::/job/step", "job", ("memory.max", "memory.current", "inactive_file")),
        (
            "4:memory:/job/step",
            "memory",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_a_limit_of_any_group_above_counts(
    tmp_path: Path, line: str, folder: str, names: tuple[str, str, str]
) -> None:
    """Version 2 with a limit in the middle, and version 1 in a container, whose root has it."""
    (tmp_path / folder).mkdir()
    for name, text in zip((*names[:2], "memory.stat"), ("1000\n", "600\n", f"{names[2]} 150\n")):
        (tmp_path / folder / name).write_text(text)
    lines = ["3:cpuset:/", line]
    assert list(left_in_groups(lines, tmp_path)) == [550]
    (tmp_path / folder / names[0]).write_text("max\n")
    assert list(left_in_groups(lines, tmp_path)) == []
