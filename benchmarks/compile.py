"""Times forward and backward of every backbone, with and without torch.compile.

    OMP_NUM_THREADS=1 python benchmarks/compile.py
    python benchmarks/compile.py --backbones deit_tiny --device cuda

Networks are compiled as with ``trainer.compile=true``. The time of compiling has a separate row; a
run is faster only if its steps save more than that.
"""

import argparse
import copy
import time
from collections.abc import Callable
from functools import partial

import record
import torch
from measure import interleaved
from torch import Tensor, nn

from oversmoothing.aggregators.centered import Centered
from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.backbones.cnn import CNN
from oversmoothing.lab.backbones.gcn import GCN
from oversmoothing.lab.backbones.t2t import T2TViT
from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.data.csbm import generate
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device

CENTERED = [partial(Centered, gamma=-0.5)]
Made = tuple[nn.Module, tuple[Tensor, ...]]


def images(network: nn.Module) -> Made:
    return network, (torch.rand(2, 3, 224, 224),)


def bert() -> Made:
    tokens = torch.randint(5, 1000, (8, 64))
    mask, types = torch.ones(8, 64, dtype=torch.bool), torch.zeros_like(tokens)
    sizes = {"depth": 6, "dim": 256, "heads": 4, "ffn": 1024, "vocabulary": 1000, "dropout": 0.0}
    return BERT(CENTERED, weights="none", **sizes), (tokens, mask, types)


def gcn() -> Made:
    graph = generate(num_nodes=2700)
    return GCN(CENTERED, graph.x, graph.edges, 5, [0, 1, 2, 3, 4], depth=8, dropout=0.0), ()


BACKBONES: dict[str, tuple[str, Callable[[], Made]]] = {
    "deit_tiny": (
        "DeiT-Ti, centered, 2 × 224²",
        lambda: images(ViT(CENTERED, name="deit_tiny_patch16_224", weights="none")),
    ),
    "t2t_vit_7": (
        "T2T-ViT-7, centered, 2 × 224²",
        lambda: images(T2TViT(CENTERED, name="t2t_vit_7")),
    ),
    "resnet18": (
        "ResNet-18, stride 8, 2 × 224²",
        lambda: images(CNN([], name="resnet18", weights="none", multi_grid=None)),
    ),
    "bert": ("BERT, 6 layers of 256, centered, 8 × 64 tokens", bert),
    "gcn": ("GCN, 8 layers, centered, 5 seeds, 2,700 nodes", gcn),
}


def main() -> None:
    options = arguments()
    for name in options.backbones:
        work, make = BACKBONES[name]
        rows = measured(work, make, options)
        record.save(rows)


def measured(work: str, make: Callable[[], Made], options: argparse.Namespace) -> list[record.Row]:
    torch.manual_seed(0)
    place = device(options.device)
    network, inputs = make()
    network, inputs = network.to(place).train(), [x.to(place) for x in inputs]
    other = copy.deepcopy(network)
    with torch.autocast(place.type, torch.bfloat16, enabled=options.bf16):
        eager = partial(step, network, network, inputs)
        compiled = partial(step, other, torch.compile(other), inputs)
        began = time.process_time()
        compiled()
        compiled()  # compiles the backward pass
        start = time.process_time() - began
        seconds = interleaved({"compiled": compiled, "eager": eager}, options.rounds)
    kind = "bf16" if options.bf16 else "fp32"
    milliseconds = {form: [1e3 * value for value in values] for form, values in seconds.items()}
    return [
        record.row(
            work, f"ms, {kind}, compiled", milliseconds["compiled"],
            peer="without torch.compile", theirs=milliseconds["eager"],
        ),
        record.row(work, f"CPU s to compile, {kind}", [start]),
    ]  # fmt: skip


def step(network: nn.Module, call: Callable, inputs: list[Tensor]) -> None:
    network.zero_grad()
    out = call(*inputs)
    sum(part.float().square().mean() for part in flat(out)).backward()


def flat(out: object) -> list[Tensor]:
    """Lists all outputs with a gradient."""
    if isinstance(out, Tensor):
        return [out] if out.requires_grad else []
    return [x for part in out for x in flat(part)] if isinstance(out, (list, tuple)) else []


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--backbones", nargs="+", choices=BACKBONES, default=[*BACKBONES])
    parser.add_argument("--bf16", action="store_true", help="with autocast to bfloat16")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
