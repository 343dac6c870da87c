"""Measures of the networks of the study, before and after training."""

import math
from pathlib import Path

import pytest
import torch

from oversmoothing.lab.arguments import build
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import parts
from oversmoothing.lab.papers.claims.evidence import Evidence
from oversmoothing.lab.papers.claims.recent import collapsed
from oversmoothing.lab.papers.claims.rules import Verdict
from oversmoothing.lab.papers.measures import (
    HEADER,
    MEASURES,
    Row,
    after,
    at_start,
    in_gcn,
    of_layers,
    spearman,
)
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.base import Job

WORDS = ("experiment=gnn_cures", "data=sbm", "data.num_nodes=320", "backbone.depth=4")


def test_measuring_a_training_changes_nothing(tmp_path: Path) -> None:
    config = compose_config([*WORDS, "trainer.epochs=10", "seeds=[0,1]"])
    given, task = parts(config, build(config.data)), build(config.task)
    network = task.network(given, [0, 1], torch.device("cpu"))
    recorder = Recorder(tmp_path, [0, 1])
    plain = task.run(network, Job(given, [0, 1], recorder, torch.device("cpu")))
    for seed, own in enumerate(after(config)):
        assert own["test_accuracy"] == plain[seed]["test_accuracy"]
        assert math.isnan(own["values"][0]) and all(map(math.isfinite, own["values"][1:]))


@pytest.mark.parametrize("backbone", ["gcn", "jknet", "gprgnn"])
def test_the_first_step_is_measured_for_any_network(backbone: str) -> None:
    config = compose_config([*WORDS, f"backbone={backbone}", "backbone.dropout=0", "seeds=[3]"])
    graph = build(config.data)
    values = dict(zip(MEASURES, at_start(config, graph)))
    assert values["gradient"] > 0 and 0 <= values["mean_share"] <= 1
    assert 1 <= values["output_centered_effective_rank"] <= graph.num_classes


def test_a_network_is_measured_as_if_alone_and_ranks_count_differences() -> None:
    torch.manual_seed(0)
    hidden, output = [torch.randn(2, 9, 5)], torch.randn(2, 9, 3)
    line = torch.tensor([1.0, 2.0, 0.0]) + torch.arange(9.0)[:, None] * torch.tensor(
        [0.0, 1.0, 2.0]
    )
    output[1] = line  # far from 0, but the nodes differ in one direction
    edges = torch.tensor([[0, 1, 4, 5], [1, 0, 5, 4]])
    both = of_layers(hidden, output, edges)
    alone = of_layers([hidden[0][:1]], output[:1], edges)
    assert [of[0] for of in both.values()] == pytest.approx([of[0] for of in alone.values()])
    assert both["output_centered_effective_rank"][1] == pytest.approx(1)
    assert both["output_centered_stable_rank"][1] == pytest.approx(1)
    assert both["output_effective_rank"][1] > 1.2


def test_a_method_counts_once() -> None:
    def row(method: str, value: float, accuracy: float) -> Row:
        return Row("g", 32, method, "", 0, 0, accuracy, (value,) * len(MEASURES))

    rows = [row("a", 1, 50), *(row("b", 2, 60 + i) for i in range(9)), row("c", 3, 90)]
    assert spearman(rows, "cosine")[0] == pytest.approx(1) and spearman(rows, "cosine")[2] == 3


def test_other_networks_are_left_out() -> None:
    rows = [Row("Cora", 32, m, "", 0, 0, 50.0, (1.0,) * len(MEASURES)) for m in ("GCNII", "none")]
    assert [row.method for row in in_gcn(rows)] == ["none"]


@pytest.mark.parametrize(
    ("failing", "verdict"), [(1.0, Verdict.HOLDS), (9.0, Verdict.CONTRADICTED)]
)
def test_collapse_is_counted_for_each_graph(
    failing: float, verdict: Verdict, tmp_path: Path
) -> None:
    def line(graph: str, number: int) -> str:
        accuracy, rank = (20, failing) if number < 8 else (80, 10 - failing)
        values = ",".join(str(rank) for _ in MEASURES)
        return f"{graph},32,method {number},run,0,1,{accuracy},{values}\n"

    lines = (line(graph, number) for graph in ("Cora", "CiteSeer") for number in range(20))
    (tmp_path / "measures.csv").write_text(",".join(HEADER) + "\n" + "".join(lines))
    found = collapsed(Evidence(tmp_path), rank=3)
    assert found.verdict == verdict and found.n == "20 methods"
