"""Every aggregator in every backbone: whether they fit, and what the pair costs."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.config.instantiate import build
from oversmoothing.data.graphs.sbm import generate
from oversmoothing.errors import InputError
from oversmoothing.launch.command import CONFIGS, compose_config

Trial = tuple[nn.Module, Callable[[], Tensor]]  # a network and a forward pass


def on_images(side: int) -> Callable[[Callable[..., nn.Module], list], Trial]:
    """Two images of ``side`` × ``side`` pixels."""

    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        network = backbone(aggregators=aggregators)
        images = torch.rand(2, 3, side, side)
        return network, lambda: network(images)[0]

    return trial


def on_a_graph(nodes: int) -> Callable[[Callable[..., nn.Module], list], Trial]:
    """A stochastic block model, one seed."""

    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        graph = generate(num_nodes=nodes)
        network = backbone(
            aggregators=aggregators, x=graph.x, edges=graph.edges, num_classes=5, seeds=[0]
        )
        return network, network

    return trial


def on_sentences(length: int) -> Callable[[Callable[..., nn.Module], list], Trial]:
    """Four sentences, one of them shorter."""

    def trial(backbone: Callable[..., nn.Module], aggregators: list) -> Trial:
        network = backbone(aggregators=aggregators)
        tokens = torch.randint(network.vocabulary, (4, length))
        mask = torch.ones_like(tokens, dtype=torch.bool)
        mask[0, 3 * length // 4 :] = False
        return network, lambda: network(tokens, mask, torch.zeros_like(tokens))

    return trial


@dataclass(frozen=True)
class Column:
    """A backbone's YAML with its overrides, and what it is tried on."""

    title: str
    backbone: str
    trial: Callable[[Callable[..., nn.Module], list], Trial]
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
    """Names of the YAMLs, ``none`` first."""
    names = sorted(path.stem for path in (CONFIGS / "aggregator").glob("*.yaml"))
    return ["none", *(name for name in names if name != "none")]


def assemble(column: Column, aggregator: str, **overrides: Any) -> Trial:
    """A network with an aggregator.

    Args:
        overrides: of the aggregator's YAML.

    Raises:
        InputError: they do not fit; its line says why.
    """
    config = compose_config([f"backbone={column.backbone}", f"aggregator={aggregator}"])
    node, method = config.backbone, config.aggregator
    node.update(column.overrides)
    method.update(overrides)
    torch.manual_seed(0)
    return column.trial(build(node), [build(method), NoAggregator])


def measure(column: Column, aggregator: str, rounds: int) -> dict[str, Any]:
    """Parameters, FLOPs (two a multiply-add) of a forward pass, and the time of a training step.

    Returns:
        ``parameters``, ``flops``, ``seconds`` (median of forward and backward), or ``refused``.
    """
    try:
        network, forward = assemble(column, aggregator)
    except InputError as error:
        return {"refused": str(error)}
    network.train()
    counter = FlopCounterMode(display=False)
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
