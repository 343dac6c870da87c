"""Counts memory, launches and FLOPs of training steps at the papers' sizes without running them.

    python benchmarks/paper_sizes.py

Images and text are fake tensors, which have shapes but no content. The graph is generated, with as
many nodes, edges and features as Squirrel, since its operators depend on the edges. A step is
forward, backward and optimizer. The WSSS step is without PAR and L_reg, whose cost is small.

Hours are estimated and not measured: steps × (FLOPs / (fraction × peak) + launches × 5 µs) on one
GPU, for the recipe of the experiment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import record
import torch
from counting import Counting
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from oversmoothing.lab.arguments import build
from oversmoothing.lab.data.graph import Graph
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.start import parts
from oversmoothing.lab.tasks.base import Labels

PEAK = 156e12  # TF32 products of an A100, in FLOP/s
FRACTION = 0.35  # of the peak that a training step reaches
LAUNCH = 5e-6  # seconds
GB = "GB in float32"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Work:
    """A training of which one step is counted.

    Args:
        name: for the table.
        words: the command.
        inputs: returns the inputs of the network.
        loss: computes the loss of its outputs.
        steps: number of steps of the recipe, and number of runs.
        before: called before the step, without gradient.
    """

    name: str
    words: tuple[str, ...]
    inputs: Callable[[], tuple]
    loss: Callable[[object], Tensor]
    steps: int
    before: Callable[..., None] = lambda network, *inputs: None


def _cams(network: nn.Module, images: Tensor) -> None:
    """Computes class maps of images and their mirror images at all scales of WSSS."""
    for size in (448, 224, 672):
        network.class_maps(torch.cat([images.new_empty(len(images), 3, size, size)] * 2))


def _of_images(name: str, words: tuple[str, ...], batch: int, steps: int, size: int = 224) -> Work:
    """Classification of images."""
    inputs = partial(torch.rand, batch, 3, size, size)
    return Work(name, words, lambda: (inputs(),), lambda out: out.sum(), steps)


def _of_text(name: str, words: tuple[str, ...], steps: int) -> Work:
    """Classification of 32 sentences of 128 tokens."""
    tokens, mask = partial(torch.zeros, 32, 128, dtype=torch.long), partial(torch.ones, 32, 128)
    return Work(name, words, lambda: (tokens(), mask().long(), tokens()), lambda o: o.sum(), steps)


def _of_masks(name: str, words: tuple[str, ...]) -> Work:
    """Segmentation of 16 crops of 513 px, as HEMNet is trained."""
    whole = partial(nn.functional.interpolate, size=(513, 513), mode="bilinear")
    return Work(
        name,
        words,
        lambda: (torch.rand(16, 3, 513, 513),),
        lambda out: whole(out.seg).sum(),
        30000,
    )


GLUE = 8551 + 67349 + 3668 + 363846 + 5749 + 392702 + 104743 + 2490  # sentences of its eight tasks
IMAGENET = ("experiment=cls_imagenet", "backbone.depth=12")
VOC = Labels(("background", *map(str, range(20))))
WORKS = [
    Work(
        "WSSS, DeiT-S, 448 px, batch 4: one γ of Tables 1 to 4",
        ("experiment=wsss_voc",),
        lambda: (torch.rand(4, 3, 448, 448),),
        lambda out: out.cls.sum() + out.aux.sum() + out.seg.sum(),
        20000,
        _cams,
    ),
    _of_masks(
        "HEM, ResNet-101, 513 px, output stride 8, batch 16: one row of Tables 3 to 6",
        ("experiment=seg_voc_hem",),
    ),
    _of_masks(
        "HEM, ResNet-50, 513 px, output stride 16, batch 16: one cell of Table 1",
        ("experiment=seg_voc_hem", "backbone=resnet50", "backbone.output_stride=16"),
    ),
    _of_text(
        "ContraNorm, BERT-base, 128 tokens, batch 32: RTE, 3 seeds",
        ("experiment=glue_bert",),
        3 * 5 * 2490 // 32,
    ),
    _of_text(
        "ContraNorm, BERT-base, 128 tokens, batch 32: one row of Table 1, 8 tasks, 3 seeds",
        ("experiment=glue_bert",),
        3 * 5 * GLUE // 32,
    ),
    _of_text(
        "ContraNorm, ALBERT-base, 128 tokens, batch 32: one row of Table 1, 8 tasks, 3 seeds",
        ("experiment=glue_albert",),
        3 * 5 * GLUE // 32,
    ),
    _of_images(
        "ContraNorm, DeiT-Ti, ImageNet-100, 12 blocks, batch 1024: one cell of Table 2",
        ("experiment=cls_imagenet100", "backbone.depth=12"),
        1024,
        18750,
    ),
    _of_images(
        "ContraNorm, DeiT-S, ImageNet, 12 blocks, batch 1024: one cell of Table 2",
        IMAGENET,
        1024,
        187650,
    ),
    _of_images(
        "external attention, EAMLP-7, ImageNet, 384 px, batch 512: one row",
        ("experiment=cls_imagenet_eamlp", "task.augment.size=384", "task.evaluation.size=384"),
        512,
        750600,
        384,
    ),
]


def main() -> None:
    record.parser_of(__doc__).parse_args()
    rows = []
    for work in WORKS:
        network, fake = network_of(work.words), FakeTensorMode()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        network._apply(fake.from_tensor)
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        with fake:
            rows += _rows(work.name, _counted(work, network), work.steps)
    note = "the custom operator hides its launches and FLOPs, so they are not counted"
    gigabytes = [_graph().peak / 1e9]
    rows.append(record.row("ContraNorm, GCN-32 on Squirrel, one seed", GB, gigabytes, note=note))
    record.save(rows)


def network_of(words: tuple[str, ...], data: object = VOC) -> nn.Module:
    config = compose_config([*words, "seeds=[0]"])
    if "weights" in config.backbone:
        config.backbone.weights = "none"
    task = build(config.task)
    given = data if getattr(task.toy, "background", False) else task.toy
    return task.network(parts(config, given), [0], CPU)


def _counted(work: Work, network: nn.Module) -> Counting:
    network.train()
    inputs = work.inputs()
    return _step(
        lambda: work.loss(network(*inputs)), network, lambda: work.before(network, *inputs)
    )


def _step(loss: Callable, network: nn.Module, before: Callable = lambda: None) -> Counting:
    """Counts the first step, in which the optimizer also creates its state."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    with Counting() as counting:
        with torch.no_grad():
            before()
        loss().backward()
        optimizer.step()
    counting.peak += 4 * sum(p.numel() for p in network.parameters())
    return counting


def _graph() -> Counting:
    """A step of one seed's network on a random graph of Squirrel's size."""
    N, E, F = 5201, 198493, 2089
    draw = torch.Generator().manual_seed(0)
    pairs = torch.randint(N, (2, E), generator=draw)
    edges = torch.cat([pairs, pairs.flip(0)], dim=1).unique(dim=1)
    x = (torch.rand(N, F, generator=draw) < 0.01).float().to_sparse_csr()
    y, mask = torch.randint(5, (N,), generator=draw), torch.ones(N, dtype=torch.bool)
    graph = Graph("squirrel", x, y, edges, 5, mask, mask, mask, "random")
    words = ["experiment=gnn_table5", "data=squirrel", "backbone.depth=32"]
    config = compose_config([*words, "aggregator=contranorm", "aggregator@then=none"])
    task = build(config.task)
    network = task.network(parts(config, graph), [0], CPU).train()
    return _step(lambda: network().sum(), network)


def _rows(name: str, counting: Counting, steps: int) -> list[record.Row]:
    seconds = counting.flops / (FRACTION * PEAK) + counting.launches * LAUNCH
    return [
        record.row(name, "TFLOP per step", [counting.flops / 1e12]),
        record.row(name, "launches per step", [counting.launches]),
        record.row(name, GB, [counting.peak / 1e9]),
        record.row(name, "steps", [steps]),
        record.row(name, "hours", [seconds * steps / 3600]),
    ]


if __name__ == "__main__":
    main()
