"""What a training of a paper's size costs, and what measuring a model costs."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import timm
import torch
from bench import Comparison, Item, Run, row
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from transformers import AutoModel

import oversmoothing as osm
from oversmoothing.diagnosis.measures import DEFAULT, OF_GRADIENT
from oversmoothing.lab.arguments import build
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import parts
from oversmoothing.lab.tasks.base import Labels


@dataclass(frozen=True)
class Work:
    """A training of which one step is measured.

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
    steps: int
    loss: Callable[[Any], Tensor] = torch.sum
    before: Callable[..., None] = lambda network, *inputs: None

    def network(self) -> nn.Module:
        config = compose_config([*self.words, "seeds=[0]"])
        if "weights" in config.backbone:
            config.backbone.weights = "none"
        task = build(config.task)
        voc = Labels(("background", *map(str, range(20))))
        given = voc if getattr(task.toy, "background", False) else task.toy
        return task.network(parts(config, given), [0], torch.device("cpu"))

    def step(self, network: nn.Module, inputs: tuple, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        with torch.no_grad():
            self.before(network, *inputs)
        self.loss(network(*inputs)).backward()
        optimizer.step()


def _pixels(batch: int, size: int) -> tuple[Tensor]:
    return (torch.rand(batch, 3, size, size),)


def _sentences() -> tuple[Tensor, ...]:
    """32 sentences of 128 tokens."""
    tokens, mask = torch.zeros(32, 128, dtype=torch.long), torch.ones(32, 128, dtype=torch.long)
    return tokens, mask, torch.zeros_like(tokens)


def _whole(out: Any) -> Tensor:
    """The loss of segmentation, over logits of the size of the image."""
    return nn.functional.interpolate(out.seg, size=(513, 513), mode="bilinear").sum()


def _cams(network: nn.Module, images: Tensor) -> None:
    """Computes class maps of images and their mirror images at all scales of WSSS."""
    for size in (448, 224, 672):
        network.class_maps(torch.cat([images.new_empty(len(images), 3, size, size)] * 2))


HEM = ("experiment=seg_voc_hem",)
BERT, ALBERT = ("experiment=glue_bert",), ("experiment=glue_albert",)
EAMLP = ("experiment=cls_imagenet_eamlp", "task.augment.size=384", "task.evaluation.size=384")
RTE = 2490  # sentences
GLUE = RTE + 8551 + 67349 + 3668 + 363846 + 5749 + 392702 + 104743  # of its eight tasks
WORKS = [
    Work("WSSS, DeiT-S, 448 px, batch 4: one γ of Tables 1 to 4", ("experiment=wsss_voc",),
         partial(_pixels, 4, 448), 20000,
         lambda out: out.cls.sum() + out.aux.sum() + out.seg.sum(), _cams),
    Work("HEM, ResNet-101, 513 px, output stride 8, batch 16: one row of Tables 3 to 6", HEM,
         partial(_pixels, 16, 513), 30000, _whole),
    Work("HEM, ResNet-50, 513 px, output stride 16, batch 16: one cell of Table 1",
         (*HEM, "backbone=resnet50", "backbone.output_stride=16"),
         partial(_pixels, 16, 513), 30000, _whole),
    Work("ContraNorm, BERT-base, 128 tokens, batch 32: RTE, 3 seeds", BERT,
         _sentences, 3 * 5 * RTE // 32),
    Work("ContraNorm, BERT-base, 128 tokens, batch 32: one row of Table 1, 8 tasks, 3 seeds", BERT,
         _sentences, 3 * 5 * GLUE // 32),
    Work("ContraNorm, ALBERT-base, 128 tokens, batch 32: one row of Table 1, 8 tasks, 3 seeds",
         ALBERT, _sentences, 3 * 5 * GLUE // 32),
    Work("ContraNorm, DeiT-Ti, ImageNet-100, 12 blocks, batch 1024: one cell of Table 2",
         ("experiment=cls_imagenet100", "backbone.depth=12"), partial(_pixels, 1024, 224), 18750),
    Work("ContraNorm, DeiT-S, ImageNet, 12 blocks, batch 1024: one cell of Table 2",
         ("experiment=cls_imagenet", "backbone.depth=12"), partial(_pixels, 1024, 224), 187650),
    Work("external attention, EAMLP-7, ImageNet, 384 px, batch 512: one row", EAMLP,
         partial(_pixels, 512, 384), 750600),
]  # fmt: skip


WITHOUT_MAPS = ("attention_similarity", "attention_entropy", "attention_sink", "attention_cosine")
WITHOUT_RANKS = ("effective_rank", "stable_rank", "effective_rank_without_outliers")


def diagnose(
    run: Run, deit: str = "", minilm: str = "", batch: int = 8, tokens: int = 64
) -> Iterator[Comparison]:
    """``osm.diagnose``, beside a forward pass of the same model without gradients.

    DeiT-Ti gets images of noise, and MiniLM random words. ``all`` are the measures that are shown
    by default; the other forms leave some out with ``metrics=``. Options are weights: --deit a file
    for timm's deit_tiny_patch16_224, random ones without it; --minilm the folder of
    all-MiniLM-L6-v2.
    """
    torch.manual_seed(0)
    models = {f"DeiT-Ti, {batch} × 224²": partial(_deit, deit, batch)}
    if minilm:
        models[f"MiniLM, {batch} × {tokens} words"] = partial(_minilm, minilm, batch, tokens)
    for name, load in models.items():
        model, given = load()
        model.to(run.place).eval()
        given = {key: x.to(run.place) for key, x in given.items()}
        forms = {
            "all": None,
            "no attention maps": [m for m in DEFAULT if m not in (*WITHOUT_MAPS, *OF_GRADIENT)],
            "no ranks": [m for m in DEFAULT if m not in (*WITHOUT_RANKS, *OF_GRADIENT)],
            "neither": ["cosine", "mean_share", "norm"],
        }
        yield Comparison(
            {f"{name}, {form}": partial(_diagnosis, model, given, metrics)
             for form, metrics in forms.items()},
            {"forward pass": partial(_forward, model, given)},
            overhead=("forward pass",),
        )  # fmt: skip


def _deit(weights: str, batch: int) -> tuple[nn.Module, dict[str, Tensor]]:
    model = timm.create_model("deit_tiny_patch16_224")
    if weights:
        model.load_state_dict(torch.load(weights, weights_only=True))
    return model, {"x": torch.randn(batch, 3, 224, 224)}


def _minilm(folder: str, batch: int, tokens: int) -> tuple[nn.Module, dict[str, Tensor]]:
    words = torch.randint(1000, 30000, (batch, tokens))
    return AutoModel.from_pretrained(folder), {
        "input_ids": words,
        "attention_mask": torch.ones_like(words),
    }


def _diagnosis(model: nn.Module, given: dict[str, Tensor], metrics: Any) -> Callable[[], Any]:
    return lambda: osm.diagnose(model, metrics=metrics, **given)


def _forward(model: nn.Module, given: dict[str, Tensor]) -> Callable[[], Any]:
    return torch.no_grad()(lambda: model(**given))


def paper_steps(run: Run, works: tuple[str, ...] = ("",)) -> Iterator[Item]:
    """Training steps at the papers' sizes, measured on a GPU: --device cuda --works BERT EAMLP-7.

    A step is forward, backward and fused AdamW with random weights and inputs, in float32 (TF32
    products) and with trainer.precision=bf16. Hours are those of the experiment's recipe, without
    reading data and without evaluation. What does not fit into the memory has no values.
    """
    torch.set_float32_matmul_precision("high")

    def make(work: Work, bf16: bool) -> Callable[[], None]:
        torch.manual_seed(0)
        network = work.network().to(run.place).train()
        inputs = tree_map_only(Tensor, lambda x: x.to(run.place), work.inputs())
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-6, fused=True)
        step = partial(work.step, network, inputs, optimizer)
        return torch.autocast(run.place.type, torch.bfloat16, enabled=bf16)(step)

    for work in WORKS:
        if not any(name in work.name for name in works):
            continue
        for precision in ("float32", "bf16"):
            found = yield Comparison(
                {work.name: partial(make, work, precision == "bf16")},
                unit=f"ms per step, {precision}",
                peak=f"GB, {precision}",
            )
            gc.collect()
            if found:
                ms = [float(found[0][f"ours{end}"]) for end in ("_low", "", "_high")]
                hours = [value * work.steps / 3.6e6 for value in ms]
                yield [row(work.name, f"hours, {precision}", hours)]
