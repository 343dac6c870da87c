"""Training of graph networks: splits, patience, weight decay of linear layers."""

import functools
import json
from dataclasses import replace

import pytest
import torch
from listening import Listening
from run_log import log_text

from oversmoothing.aggregators.base import PLAIN, After, Context
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.aggregators.layernorm import LayerNorm
from oversmoothing.errors import InputError
from oversmoothing.lab.backbones.gcn import GCN, GCNII
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.data.graph import check_graph
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.nodes import FullBatchAdam, FullBatchLoop, roc_auc

SMALL = {"num_nodes": 150, "num_classes": 3, "train_per_class": 10, "num_val": 40, "features": 20}


@pytest.fixture(scope="module")
def graph():
    """A graph with two splits, the second one of other nodes."""
    one = generate(**SMALL)
    order = torch.randperm(150, generator=torch.Generator().manual_seed(0))
    masks = {name: getattr(one, name) for name in ("train", "val", "test")}
    return replace(one, **{name: torch.stack([m, m[order]]) for name, m in masks.items()})


def chosen(graph, folder, seeds, aggregators=(), **options):
    torch.manual_seed(0)
    model = GCNII([*aggregators], graph.x, graph.edges, graph.num_classes, seeds)
    recorder = Recorder(folder, seeds, checkpoint_seconds=1000)
    loop = FullBatchLoop(model, graph, FullBatchAdam(**options), recorder, False)
    loop.fit()
    return loop


def test_aggregators_hear_of_every_step_before_and_after_it(graph, tmp_path) -> None:
    loop = chosen(graph, tmp_path, [0], epochs=2)
    loop.model.own = Listening()
    loop.step()
    assert loop.model.own.heard == ["before 2", "after"]


class Dropping(After):
    """Draws random numbers from torch's global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, context: Context = PLAIN) -> torch.Tensor:
        return self.dropout(x)


def test_a_seed_has_its_own_dropout_in_aggregators(graph, tmp_path) -> None:
    """It depends neither on other seeds nor on an interruption."""
    options = {"eval_every": 1, "lr": 0.02}
    both = chosen(graph, tmp_path / "both", [0, 1], [Dropping], epochs=6, **options).chosen
    for seed in (0, 1):
        own = replace(graph, **{k: getattr(graph, k)[seed] for k in ("train", "val", "test")})
        chosen(own, tmp_path / f"{seed}", [seed], [Dropping], epochs=3, **options)._save()
        [alone] = chosen(own, tmp_path / f"{seed}", [seed], [Dropping], epochs=6, **options).chosen
        assert both[seed]["train_loss"] == pytest.approx(alone["train_loss"], abs=1e-6)


def test_a_checkpoint_of_another_device_is_not_used(graph, tmp_path) -> None:
    loop = chosen(graph, tmp_path, [0], epochs=2, eval_every=1)
    loop.recorder.save_checkpoint({"epoch": 2, "device": "cuda"})
    with pytest.warns(UserWarning, match="made on cuda, not on cpu; the training starts from the"):
        chosen(graph, tmp_path, [0], epochs=3, eval_every=1)
    lines = log_text(tmp_path).splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]


def test_a_seed_is_trained_on_its_split(graph, tmp_path) -> None:
    options = {"epochs": 20, "eval_every": 5, "selection": "best-val", "lr": 0.02}
    both = chosen(graph, tmp_path / "both", [0, 1], **options).chosen
    for seed in (0, 1):
        own = replace(graph, **{k: getattr(graph, k)[seed] for k in ("train", "val", "test")})
        alone = chosen(own, tmp_path / f"alone{seed}", [seed], **options).chosen[0]
        for key, value in alone.items():
            assert both[seed][key] == pytest.approx(value, abs=1e-5)


def test_patience_stops_and_does_not_depend_on_other_seeds(graph, tmp_path) -> None:
    options = {"epochs": 400, "eval_every": 2, "selection": "best-val", "patience": 10, "lr": 0.05}
    both = chosen(graph, tmp_path / "both", [0, 1], **options)
    alone = [chosen(graph, tmp_path / f"alone{s}", [s], **options) for s in (0, 1)]
    assert both.epoch < 400
    assert both.epoch == max(loop.epoch for loop in alone)
    assert [loop.epoch - loop.chosen[0]["epoch"] for loop in alone] == [10, 10]
    assert [c["epoch"] for c in both.chosen] == [loop.chosen[0]["epoch"] for loop in alone]
    alone[0].recorder.diagnose_every = 1000
    alone[0].epoch, alone[0].chosen = 1, []
    alone[0].fit()
    [last] = [line for line in log_text(tmp_path / "alone0").splitlines() if "cosine" in line]
    assert json.loads(last)["epoch"] == alone[0].epoch < 400, "layers are measured at the end"


def test_weights_that_are_not_finite_are_no_result(graph, tmp_path) -> None:
    with pytest.raises(InputError, match="epoch 1;"):
        chosen(graph, tmp_path, [0], epochs=1, eval_every=1, lr=1e39)


def test_roc_auc_needs_both_classes_in_every_mask() -> None:
    two = generate(**SMALL | {"num_classes": 2})
    check_graph(replace(two, metric="roc_auc"))
    only = replace(two, val=two.val & (two.y == 1))
    check_graph(only)
    with pytest.raises(InputError, match="val"):
        check_graph(replace(only, metric="roc_auc"))


def test_linear_layers_have_a_weight_decay_of_their_own(graph) -> None:
    model = GCNII([], graph.x, graph.edges, graph.num_classes, [0], depth=3)
    groups = FullBatchAdam(weight_decay=0.01, dense_weight_decay=5e-4).groups(model)
    assert [len(group["params"]) for group in groups] == [3, 4]
    assert [group["weight_decay"] for group in groups] == [0.01, 5e-4]
    [all_alike] = FullBatchAdam(weight_decay=0.01).groups(model)
    assert len(all_alike["params"]) == 7
    FullBatchAdam(dense_weight_decay=5e-4).fits(model)
    plain = GCN([], graph.x, graph.edges, graph.num_classes, [0], depth=3)
    with pytest.raises(InputError, match="dense_weight_decay: this network has no linear layers"):
        FullBatchAdam(dense_weight_decay=5e-4).fits(plain)


def test_a_compiled_training_equals_the_plain_one(graph, tmp_path, monkeypatch) -> None:
    """With sparse features and dropout; training and evaluation are one graph each."""
    eager = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", eager)
    torch._dynamo.utils.counters.clear()
    options = {"aggregators": [ContraNorm, LayerNorm], "epochs": 3, "eval_every": 3}
    runs = {
        compile: chosen(graph, tmp_path / str(compile), [0, 1], compile=compile, **options)
        for compile in (True, False)
    }
    for ours, theirs in zip(*(run.model.parameters() for run in runs.values())):
        torch.testing.assert_close(ours, theirs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    torch._dynamo.reset()


@pytest.mark.parametrize("values", [3, 1000])  # many ties, few ties
def test_roc_auc_is_the_share_of_pairs_in_order(values: int) -> None:
    generator = torch.Generator().manual_seed(values)
    scores = torch.randint(values, (80,), generator=generator).float()
    y = (torch.rand(80, generator=generator) < 0.3).long()
    logits = torch.stack([-scores / 2, scores / 2], dim=-1)
    gaps = scores[y == 1][:, None] - scores[y == 0]
    expected = ((gaps > 0).double() + 0.5 * (gaps == 0)).mean()
    assert roc_auc(logits, y).item() == pytest.approx(expected.item(), abs=1e-12)


def test_scores_that_are_not_numbers_give_none() -> None:
    assert roc_auc(torch.full((4, 2), torch.nan), torch.tensor([0, 1, 0, 1])).isnan()
