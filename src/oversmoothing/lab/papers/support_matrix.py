"""Tries every aggregator in every kind of backbone: whether they fit, and what the pair costs.

    oversmoothing figure matrix
    oversmoothing figure matrix --rounds 9 --columns "DeiT-Ti"

A cell shows parameters, FLOPs of a forward pass and the time of forward and backward. Times are
those of one machine and one thread, so let nothing else run. docs/guides/adding.md links the table.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from tqdm import tqdm

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.launch.config import CONFIGS, compose_config
from oversmoothing.lab.launch.script import whole
from oversmoothing.lab.papers import RESULTS, figure_parser
from oversmoothing.lab.store.environment import environment
from oversmoothing.lab.store.files import write_text

NAME = "matrix.json"
Trial = tuple[nn.Module, Callable[[], Tensor]]  # a network and a forward pass
MakeTrial = Callable[[Callable[..., nn.Module], list], Trial]  # of backbone and aggregators


def _sparse_flops(dense: Sequence[int], columns: Sequence[int], *_: Any, **__: Any) -> int:
    return 2 * columns[0] * dense[-1]


# Products with an adjacency matrix on a CPU, which torch does not count.
PRODUCTS = torch.ops.aten._embedding_bag, torch.ops.aten._embedding_bag_forward_only
SPARSE = dict.fromkeys(PRODUCTS, _sparse_flops)


def on_images(side: int) -> MakeTrial:
    """Returns a trial on two images of ``side`` × ``side`` pixels."""

    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        network = backbone(aggregators=aggregators)
        images = torch.rand(2, 3, side, side)
        return network, lambda: network(images)[0]

    return trial


def on_a_graph(nodes: int) -> MakeTrial:
    """Returns a trial on a stochastic block model, with one seed."""

    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        graph = generate(num_nodes=nodes)
        own = {"x": graph.x, "edges": graph.edges, "num_classes": 5, "seeds": [0]}
        network = backbone(aggregators=aggregators, **own)
        return network, network

    return trial


def on_sentences(length: int) -> MakeTrial:
    """Returns a trial on four sentences, one of which is shorter."""

    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        network = backbone(aggregators=aggregators)
        tokens = torch.randint(network.vocabulary, (4, length))
        mask = torch.ones_like(tokens, dtype=torch.bool)
        mask[0, 3 * length // 4 :] = False
        return network, lambda: network(tokens, mask, torch.zeros_like(tokens))

    return trial


@dataclass(frozen=True)
class Column:
    """A backbone's YAML with overrides, and the data on which it is tried."""

    title: str
    backbone: str
    trial: MakeTrial
    overrides: dict[str, Any]


COLUMNS = [
    Column("GCN, 2 layers, 1,000 nodes", "gcn", on_a_graph(1000), {}),
    Column("DeiT-Ti, 2 × 224²", "deit_ti", on_images(224), {"weights": "none"}),
    Column("T2T-ViT-7, 2 × 224²", "t2t_vit_7", on_images(224), {}),
    Column("ResNet-18, 2 × 224²", "resnet18", on_images(224), {"weights": "none"}),
    Column("MobileNetV2, 2 × 224²", "mobilenetv2", on_images(224), {"weights": "none"}),
    Column("BERT, 2 layers of 128, 4 × 128 tokens", "bert_small", on_sentences(128), {}),
]


def aggregators() -> list[str]:
    """Returns the names of the aggregators' YAMLs, ``none`` first."""
    names = sorted(path.stem for path in (CONFIGS / "aggregator").glob("*.yaml"))
    return ["none", *(name for name in names if name != "none")]


def assemble(column: Column, aggregator: str, **overrides: Any) -> Trial:
    """Builds a network with an aggregator.

    Args:
        overrides: options of the aggregator.

    Raises:
        InputError: the aggregator does not fit the backbone; the line says why.
    """
    config = compose_config([f"backbone={column.backbone}", f"aggregator={aggregator}"])
    node, method = config.backbone, config.aggregator
    node.update(column.overrides)
    method.update(overrides)
    torch.manual_seed(0)
    return column.trial(build(node), [build(method), NoAggregator])


def measure(column: Column, aggregator: str, rounds: int) -> dict[str, Any]:
    """Measures the size and cost of a pair.

    Returns:
        ``parameters``; ``flops`` of a forward pass, two a multiply-add; ``seconds``, the median
        time of forward and backward; or ``refused``, the reason.
    """
    try:
        network, forward = assemble(column, aggregator)
    except InputError as error:
        return {"refused": str(error)}
    network.train()
    counter = FlopCounterMode(display=False, custom_mapping=SPARSE)
    with counter, torch.no_grad():
        forward()
    return {
        "parameters": sum(p.numel() for p in network.parameters()),
        "flops": counter.get_total_flops(),
        "seconds": statistics.median(_step(forward) for _ in range(rounds + 1)),
    }


def _step(forward: Callable[[], Tensor]) -> float:
    started = time.perf_counter()
    forward().square().mean().backward()
    return time.perf_counter() - started


def main(argv: list[str]) -> int:
    """Writes ``matrix.json`` and ``tables/matrix.md``."""
    parser = figure_parser(__doc__, pdf=False)
    parser.add_argument("--rounds", type=whole(), default=5, help="timed steps of each pair")
    parser.add_argument("--draw", action="store_true", help="write what is known, measure nothing")
    parser.add_argument("--columns", nargs="*", help="beginnings of titles; default: all columns")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    chosen = [c for c in COLUMNS if c.title.startswith(tuple(options.columns or [""]))]
    if not chosen:
        titles = "; ".join(column.title for column in COLUMNS)
        raise InputError(f"--columns: none of {options.columns}; expected beginnings of: {titles}")
    known, path = json.loads((RESULTS / NAME).read_text("utf-8"))["cells"], options.target / NAME
    for column in chosen if not options.draw else []:
        names = tqdm(aggregators(), column.title, disable=None)
        known[column.title] = {name: measure(column, name, options.rounds) for name in names}
        record = {"command": "python scripts/figure.py matrix", "env": environment("cpu")}
        text = json.dumps(record | {"cells": known}, indent=1, ensure_ascii=False)
        write_text(path, text + "\n")
    shown = options.target / "tables/matrix.md"
    write_text(shown, markdown(known) + "\n")
    print(markdown(known), path, shown, sep="\n")
    return 0


def markdown(cells: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Returns a table with aggregators down and backbones across, and reasons for refusals."""
    titles = [column.title for column in COLUMNS if column.title in cells]
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---|' * len(titles)}"]
    reasons: dict[str, int] = {}
    for name in aggregators():
        found = [_cell(cells[title].get(name), reasons) for title in titles]
        lines.append(f"| `{name}` | {' | '.join(found)} |")
    notes = [f"{number}. {reason}" for reason, number in reasons.items()]
    legend = "Parameters · FLOPs of a forward pass (two a multiply-add) · forward and backward, one"
    return "\n".join([*lines, "", f"{legend} CPU thread. – refused:", "", *notes])


def _cell(found: dict[str, Any] | None, reasons: dict[str, int]) -> str:
    if found is None:
        return "not tried"
    if "refused" in found:
        return f"– ({reasons.setdefault(found['refused'], len(reasons) + 1)})"
    millions, giga, ms = found["parameters"] / 1e6, found["flops"] / 1e9, 1e3 * found["seconds"]
    return f"{millions:.3g} M · {giga:.3g} G · {ms:.0f} ms"
