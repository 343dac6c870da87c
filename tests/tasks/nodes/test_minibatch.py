"""Training on parts of a graph: the mean over all nodes, several processes, resuming."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import by_two, without_error
from run_log import log_text
from small_parts import graph, looped, networks, trained
from torch import Tensor

from oversmoothing.aggregators.base import settle
from oversmoothing.lab.backbones.running_mean import measuring, use_running_means
from oversmoothing.lab.tasks import nodes_minibatch
from oversmoothing.lab.tasks.nodes import FullBatchAdam
from oversmoothing.lab.tasks.nodes_minibatch import (
    ClusterAdam,
    RandomNodeAdam,
)


@pytest.mark.parametrize(
    "recipe",
    [
        partial(RandomNodeAdam, num_parts=1, mean="exact"),
        partial(RandomNodeAdam, num_parts=1, mean="batch"),
        partial(RandomNodeAdam, num_parts=1, mean="running", momentum=1.0),
        partial(ClusterAdam, num_parts=4, parts_per_batch=4, mean="batch"),
    ],
)
def test_one_batch_with_all_nodes_is_the_full_batch(
    recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_minibatch, "metis", lambda edges, N, parts: torch.arange(N) % parts)
    same = {"epochs": 8, "eval_every": 4, "lr": 0.05}
    expected, full = trained(FullBatchAdam(**same), tmp_path / "full")
    found, batched = trained(recipe(**same), tmp_path / "parts")
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
    assert [p["test_accuracy"] for p in batched] == [f["test_accuracy"] for f in full]
    assert [p["train_loss"] for p in batched] == pytest.approx([f["train_loss"] for f in full])


def test_layers_that_share_an_aggregator_have_means_of_their_own() -> None:
    given = graph()
    net = networks(given, share_aggregators=True).nets[0]
    means = use_running_means(net, 0.0)
    assert len({id(mean) for mean in means}) == len(means) == 3
    values: list[Tensor] = []
    for layer in net.layers:
        layer.conv.inside.register_forward_pre_hook(lambda _, args: values.append(args[1]))
    net.eval()
    with torch.no_grad(), measuring(means):
        net(given.x, given.edges)
    for mean, v in zip(means, values, strict=True):
        assert torch.allclose(mean.value, v.mean(dim=0, keepdim=True))
    net.train()(given.x[:5], torch.tensor([[0, 1], [1, 0]]))  # a part keeps the measured means
    settle(net)
    for mean, v in zip(means, values):
        assert torch.allclose(mean.value, v.mean(dim=0, keepdim=True))


SAME = {"epochs": 6, "eval_every": 6, "lr": 0.05}


EACH = [
    RandomNodeAdam(num_parts=5, mean="running", accumulate=2, **SAME),  # the last step has one
    RandomNodeAdam(num_parts=4, mean="exact", accumulate=4, **SAME),
]


def stop(trainer: Any, folder: Path) -> None:
    """Trains three epochs."""
    loop = looped(trainer, folder, graph(), dropout=0.5)
    loop._stopped = lambda: loop.epoch == 3
    loop.fit()


def of_a_process(folder: str) -> None:
    """What each of two processes does; the first one leaves its weights."""
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    for i, trainer in enumerate(EACH):
        own = Path(folder) / f"{i}-{rank}"  # what is in that of process 1 is what it wrote itself
        stop(trainer, own)
        found, chosen = trained(trainer, own, dropout=0.5)
        torch.save([found, chosen[0]["train_loss"]], Path(folder) / f"{i}-{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    """Also if they are stopped and resumed: weights, dropout, means over nodes, loss."""
    without_error(by_two(of_a_process, str(tmp_path)))
    for i, trainer in enumerate(EACH):
        alone, chosen = trained(trainer, tmp_path / f"alone{i}", dropout=0.5)
        (found, loss), (other, _) = (torch.load(tmp_path / f"{i}-{r}.pt") for r in range(2))
        assert torch.equal(found, other)
        assert torch.allclose(found, alone, rtol=0, atol=1e-10)
        assert loss == pytest.approx(chosen[0]["train_loss"])
        assert log_text(tmp_path / f"{i}-0")
        assert not (tmp_path / f"{i}-1").exists()  # only process 0 writes
