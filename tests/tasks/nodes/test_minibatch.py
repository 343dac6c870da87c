"""Training on parts of a graph: the mean over all nodes, loaders, several processes, resuming."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import oversmoothing as osm
from oversmoothing.aggregators.base import settle
from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.running_mean import measuring, use_running_means
from oversmoothing.backbones.gcn.gcn import GCN
from oversmoothing.backbones.pyg.networks import Networks
from oversmoothing.data.graphs.graph import Graph, to_csr
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.base import Parts
from oversmoothing.tasks.nodes import cluster
from oversmoothing.tasks.nodes.blocks import in_blocks
from oversmoothing.tasks.nodes.cluster import ClusterAdam
from oversmoothing.tasks.nodes.neighbor import NeighborAdam
from oversmoothing.tasks.nodes.parts import rows, to_data
from oversmoothing.tasks.nodes.random_nodes import RandomNodeAdam
from oversmoothing.tasks.nodes.recipe import FullBatchAdam
from oversmoothing.tasks.nodes.task import Nodes

N, F, K, SEEDS = 40, 6, 3, [0, 1]


def graph(weighted: bool = False) -> Graph:
    generator = torch.Generator().manual_seed(0)
    upper = (torch.rand(N, N, generator=generator) < 0.15).triu(1)
    edges = (upper | upper.T).nonzero().T
    weights = (edges.sum(dim=0) + 1).double() if weighted else None
    y, mask = torch.arange(N) % K, torch.arange(N) < 25
    x = torch.randn(N, F, generator=generator, dtype=torch.float64)
    return Graph("toy", x, y, edges, K, mask, ~mask, ~mask, "", weights)


def networks(given: Graph, **options: Any) -> Networks:
    options = {"depth": 3, "hidden": 8, "dropout": 0.0} | options
    own = {} if given.weights is None else {"weights": given.weights}
    x = given.x.float()
    made = Networks([partial(Centered, -0.5)], x, given.edges, K, SEEDS, **own, **options).double()
    made.x = given.x
    return made


def looped(trainer: FullBatchAdam, folder: Path, given: Graph, **options: Any) -> Any:
    recorder = Recorder(folder, SEEDS, checkpoint_seconds=0)
    return trainer.loop(networks(given, **options), given, trainer, recorder, False)


def trained(trainer: FullBatchAdam, folder: Path, **options: Any) -> tuple[Tensor, list[dict]]:
    loop = looped(trainer, folder, graph(), **options)
    loop.fit()
    return weights(loop), loop.chosen


def weights(loop: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in loop.model.parameters()])


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
    monkeypatch.setattr(cluster, "metis", lambda edges, N, parts: torch.arange(N) % parts)
    same = {"epochs": 8, "eval_every": 4, "lr": 0.05}
    expected, full = trained(FullBatchAdam(**same), tmp_path / "full")
    found, parts = trained(recipe(**same), tmp_path / "parts")
    assert torch.allclose(found, expected, rtol=0, atol=1e-10)
    assert [p["test_accuracy"] for p in parts] == [f["test_accuracy"] for f in full]
    assert [p["train_loss"] for p in parts] == pytest.approx([f["train_loss"] for f in full])


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


def test_an_applied_aggregator_and_no_batch_norm_gets_a_running_mean() -> None:
    from torch_geometric.nn.models import GCN as Model

    model = Model(F, 8, 3, norm="batch_norm").double()
    osm.apply(model, "centered")
    means = use_running_means(model, 0.5)
    assert len(means) == 3
    assert model.norms[0].module.running_mean.shape == (8,)
    model(graph().x, graph().edges)
    settle(model)
    assert [mean.value.shape for mean in means] == [(1, 8)] * 3


def batches(trainer: Any, given: Graph) -> list[Any]:
    drawn = trainer.batches(given, given.train.nonzero()[:, 0], torch.Generator().manual_seed(3))
    sample = trainer.sampler(given)
    return [sample(index) for index in drawn]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "trainer", [RandomNodeAdam(num_parts=3), ClusterAdam(num_parts=7, parts_per_batch=2)]
)
def test_batches_divide_the_nodes_and_keep_the_edges_between_theirs(
    trainer: Any, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "metis", lambda edges, N, parts: torch.arange(N) * 5 % parts)
    given = graph(weighted)
    values = given.weights if weighted else torch.ones(given.edges.shape[1]).double()
    matrix = torch.zeros(N, N).double().index_put(tuple(given.edges), values)
    found = batches(trainer, given)
    assert torch.equal(torch.cat([batch.n_id for batch in found]).sort().values, torch.arange(N))
    for batch in found:
        nodes, (source, target) = batch.n_id, batch.edge_index
        own = batch.edge_weight if weighted else torch.ones(len(source)).double()
        part = torch.zeros(len(nodes), len(nodes)).double().index_put((target, source), own)
        assert torch.equal(part, matrix[nodes][:, nodes])


def test_metis_makes_parts_of_like_size_with_few_edges_between() -> None:
    pytest.importorskip("pymetis")
    ring = torch.arange(100)
    edges = torch.stack([ring, (ring + 1) % 100])  # directed; METIS needs both directions
    part = cluster.metis(torch.cat([edges, torch.zeros(2, 1).long()], dim=1), 100, 4)
    assert part.bincount().tolist() == pytest.approx([25] * 4, abs=2)
    assert (part[edges[0]] != part[edges[1]]).sum() <= 8
    assert torch.equal(part, cluster.metis(edges, 100, 4))


@pytest.mark.parametrize(
    ("conv", "divides"),
    [
        ("GCNConv", True),
        ("SAGEConv", True),
        ("GATConv", True),
        ("GCN2Conv", True),
        ("TransformerConv", False),  # scalar products over all channels
    ],
)
def test_convolutions_in_blocks_of_channels_are_the_same(conv: str, divides: bool) -> None:
    given = graph()
    net = networks(given, conv=conv, hidden=12).nets[0].eval()
    whole = net(given.x, given.edges.flip(0))
    before = {name: sorted(vars(module)) for name, module in net.named_modules()}
    with in_blocks(net):
        numbers = {m.decomposed_layers for m in net.modules() if hasattr(m, "decomposed_layers")}
        assert torch.allclose(net(given.x, given.edges.flip(0)), whole, rtol=0, atol=1e-14)
    assert (numbers != {1}) == divides
    assert torch.equal(net(given.x, given.edges.flip(0)), whole)
    assert before == {name: sorted(vars(module)) for name, module in net.named_modules()}


def test_rows_of_sparse_features() -> None:
    x = torch.randn(9, 5).relu() * (torch.arange(9) != 4)[:, None]
    nodes = torch.tensor([7, 4, 0, 7])
    assert torch.equal(rows(to_csr(x), nodes), x[nodes])


class WholeNeighbourhoods(NeighborAdam):
    """Batches of a NeighborLoader that samples all neighbours, made by hand."""

    def sampler(self, given: Graph) -> Any:
        from torch_geometric.utils import k_hop_subgraph

        def sample(index: Tensor) -> Any:
            edges = to_data(given).edge_index
            near = k_hop_subgraph(index, len(self.fanouts), edges, num_nodes=N)[0]
            others = near[~torch.isin(near, index)]
            nodes = torch.cat([index, others])  # the nodes that were drawn come first
            place = torch.full((N,), -1).index_copy(0, nodes, torch.arange(len(nodes)))
            inside = (place[edges] >= 0).all(dim=0)
            batch = {"edge_index": place[edges[:, inside]], "n_id": nodes, "batch_size": len(index)}
            return SimpleNamespace(**batch, get=batch.get)

        return sample


def test_whole_neighbourhoods_with_exact_means_give_the_loss_of_the_full_batch(
    tmp_path: Path,
) -> None:
    """All batches in one step: sampling nothing, the loss and gradient are those of the graph."""
    trainer = WholeNeighbourhoods(fanouts=[-1] * 2, batch_size=4, accumulate=7, mean="exact")
    options = {"depth": 2, "adjacency": "row"}
    loop = looped(trainer, tmp_path, graph(), **options)
    losses = loop.step()
    model = networks(graph(), **options)
    expected = torch.nn.functional.cross_entropy(model()[0][:25], graph().y[:25])
    assert losses[0].item() == pytest.approx(expected.item(), rel=1e-6)
    expected.backward()
    biases = [net.layers[-1].conv.bias.grad for net in (loop.model.nets[0], model.nets[0])]
    assert torch.allclose(*biases, rtol=0, atol=1e-12)  # does not pass through a mean


@pytest.mark.skipif("not __import__('torch_geometric').typing.WITH_PYG_LIB and "
                    "not __import__('torch_geometric').typing.WITH_TORCH_SPARSE",
                    reason="needs pyg-lib or torch-sparse")  # fmt: skip
def test_sampled_neighbours_come_after_the_nodes_that_were_drawn() -> None:
    given = graph()
    for batch in batches(NeighborAdam(fanouts=[2, 2], batch_size=5), given):
        nodes, (source, target) = batch.n_id, batch.edge_index
        assert given.train[nodes[: batch.batch_size]].all()
        pairs = {tuple(pair) for pair in given.edges.T.tolist()}
        assert {*zip(nodes[target].tolist(), nodes[source].tolist())} <= pairs


SAME = {"epochs": 6, "eval_every": 6, "lr": 0.05}
EACH = [
    RandomNodeAdam(num_parts=5, mean="running", accumulate=2, **SAME),  # the last step has one
    RandomNodeAdam(num_parts=4, mean="exact", accumulate=4, **SAME),
]


@pytest.mark.parametrize("trainer", EACH)
def test_a_stopped_training_goes_on_bit_equally(trainer: Any, tmp_path: Path) -> None:
    whole, _ = trained(trainer, tmp_path / "whole", dropout=0.5)
    stop(trainer, tmp_path / "cut")
    torch.rand(7)  # whatever was drawn in between
    again, chosen = trained(trainer, tmp_path / "cut", dropout=0.5)
    assert torch.equal(again, whole) and chosen[0]["epoch"] == 6


def stop(trainer: Any, folder: Path) -> None:
    """Trains three epochs."""
    loop = looped(trainer, folder, graph(), dropout=0.5)
    loop._stopped = lambda: loop.epoch == 3
    loop.fit()


def of_a_process(folder: str) -> None:
    """What each of two processes does; the first one leaves its weights."""
    os.environ["WORLD_SIZE"] = "2"
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    for i, trainer in enumerate(EACH):
        own = Path(folder) / f"{i}-{rank}"  # what is in that of process 1 is what it wrote itself
        stop(trainer, own)
        found, chosen = trained(trainer, own, dropout=0.5)
        torch.save([found, chosen[0]["train_loss"]], Path(folder) / f"{i}-{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    """Also when they are stopped and go on: weights, dropout, means over nodes, loss."""
    code = "import sys; from test_minibatch import of_a_process; of_a_process(*sys.argv[1:])"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            env={**os.environ, "RANK": str(rank), "PYTHONPATH": paths},
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    for i, trainer in enumerate(EACH):
        alone, chosen = trained(trainer, tmp_path / f"alone{i}", dropout=0.5)
        (found, loss), (other, _) = (torch.load(tmp_path / f"{i}-{r}.pt") for r in range(2))
        assert torch.equal(found, other)
        assert torch.allclose(found, alone, rtol=0, atol=1e-10)
        assert loss == pytest.approx(chosen[0]["train_loss"])
        assert (tmp_path / f"{i}-0" / "metrics.jsonl").exists()
        assert not [*(tmp_path / f"{i}-1").iterdir()]  # only process 0 writes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomNodeAdam(num_parts=0), r"trainer\.num_parts: expected 1 or more, got 0"),
        (lambda: RandomNodeAdam(momentum=0.0), r"trainer\.momentum.*trainer\.mean=batch"),
        (lambda: ClusterAdam(num_parts=3), r"parts_per_batch: expected at most .*num_parts=3"),
        (lambda: NeighborAdam(fanouts=[10, 0]), r"trainer\.fanouts: .* got \[10, 0\]"),
        (
            lambda: NeighborAdam(fanouts=[10]).fits(networks(graph())),
            r"one number for each of the 3 layers, got \[10\]",
        ),
        (
            lambda: batches(NeighborAdam(batch_size=26), graph()),
            r"at most the 25 training nodes of data toy, got 26",
        ),
        (lambda: batches(RandomNodeAdam(num_parts=41), graph()), r"at most the 40 nodes.*got 41"),
        (lambda: batches(ClusterAdam(num_parts=41), graph()), r"at most the 40 nodes.*got 41"),
    ],
)
def test_bad_input_names_the_way_out(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_processes_share_the_batches_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"accumulate: 1 .* 2 processes; set it to 2"):
        RandomNodeAdam()


def test_missing_packages_and_networks_of_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_geometric.typing as typing

    monkeypatch.setattr(typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(typing, "WITH_TORCH_SPARSE", False)
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(InputError, match=r"pyg-lib or torch-sparse.*trainer=minibatch_cluster"):
        NeighborAdam(fanouts=[1, 1, 1]).fits(networks(graph()))
    with pytest.raises(InputError, match=r"pip install pymetis.*trainer=minibatch_random"):
        ClusterAdam().sampler(graph())
    parts = Parts([Centered], GCN, RandomNodeAdam(), Nodes.toy)
    network = Nodes().network(parts, [0], torch.device("cpu"))
    with pytest.raises(InputError, match=r"GCN runs on the whole graph only.*backbone=pyg"):
        Nodes().check(network, parts)
