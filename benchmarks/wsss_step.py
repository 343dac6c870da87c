"""Compares one training step of the WSSS pipeline with ToCo's.

    python benchmarks/wsss_step.py
    python benchmarks/wsss_step.py --toco PATH          # a checkout of github.com/rulixiang/ToCo
    python benchmarks/wsss_step.py --toco PATH --name deit_small_patch16_224 --crop 448 --batch 4 \\
        --device cuda --rounds 20

A step is CAMs, PAR, pseudo labels, losses, backward and AdamW, with random weights and in float32
(TF32 products on a GPU, on both sides); ours is also measured with trainer.precision=bf16 and
trainer.compile=true. ToCo's is its own code without its two contrastive losses. L_reg is ours on
both sides, since ToCo's is C++ that must be built by hand; --no-energy leaves it out on both.
Without centering both start from the same weights, and their losses before the first step are
printed.

On a busy machine set OMP_NUM_THREADS=1. The memory on a CPU varies by 7 % between processes. Exit
code 1 if the classification losses disagree.
"""

import argparse
import math
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import clock, interleaved, peak_bytes, peak_megabytes, scaled
from record import parser_of, row, save
from toco import ToCoStep, copy_weights
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from oversmoothing.aggregators.centered import Centered
from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.lab.backbones.vit import ViT
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks.wsss.network import Network, present_classes
from oversmoothing.lab.tasks.wsss.settings import Method
from oversmoothing.lab.tasks.wsss.task import Objective
from oversmoothing.lab.training.loop import TrainingLoop, compiled
from oversmoothing.lab.training.recipes import AdamWPoly

CENTERED = partial(Centered, -1.0)
FORMS = {  # aggregator, trainer.precision, trainer.compile
    "plain": (NoAggregator, "fp32", False),
    "centered": (CENTERED, "fp32", False),
    "plain, compiled": (NoAggregator, "fp32", True),
    "plain, bf16": (NoAggregator, "bf16", False),
    "centered, bf16": (CENTERED, "bf16", False),
    "plain, bf16, compiled": (NoAggregator, "bf16", True),
    "centered, bf16, compiled": (CENTERED, "bf16", True),
}
TOLERANCE = 1e-2  # position embeddings are resampled a little differently
Step = Callable[[], dict[str, Tensor]]


def batch_of(options: argparse.Namespace) -> dict[str, Tensor]:
    """A batch of smooth noise with one or two classes per image, and a border outside the image."""
    B, S, place = options.batch, options.crop, device(options.device)
    torch.manual_seed(0)
    images = F.interpolate(torch.rand(B, 3, S // 8, S // 8), (S, S), mode="bilinear")
    label = torch.zeros(B, 20)
    label[torch.arange(B), torch.arange(B) % 20] = 1
    label[::2, 14] = 1
    box = torch.tensor([[0, S, S // 8, S]] * B)
    names = [str(i) for i in range(len(images))]
    return {
        "image": images.to(place),
        "label": label.to(place),
        "box": box.to(place),
        "name": names,
        "num_present": [2 if i % 2 == 0 and i != 14 else 1 for i in range(B)],
    }


class OurStep:
    """A step of the training loop."""

    def __init__(self, form: str, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        aggregator, precision, compiles = FORMS[form]
        vit = ViT([aggregator, NoAggregator], name=options.name, weights="none")
        place = device(options.device)
        self.network = Network(vit, num_classes=20).to(place)
        method = Method(start=0) if options.energy else Method(start=0, reg_weight=0.0)
        objective = Objective(method, self.network)
        trainer = AdamWPoly(batch_size=options.batch, precision=precision)
        run = Recorder(Path(), [0], checkpoint_seconds=math.inf)
        self.training = TrainingLoop(self.network, objective, None, trainer, run, place)
        self.batch = batch_of(options)
        self.compiled = ExitStack()  # open as long as the object exists
        self.compiled.enter_context(compiled(self.network, compiles))

    def __call__(self) -> dict[str, Tensor]:
        return self.training._step(self.network, self.batch)

    def parts(self) -> dict[str, Step]:
        """Returns the parts of the step."""
        labeller, batch = self.training.objective.labeller, self.batch
        images, present = batch["image"], present_classes(batch["label"])
        prepared = self.training.objective.prepare(batch | {"batch_size": len(images)}, 0)
        last, _ = labeller.cams(images, present)

        def learn() -> None:
            losses = self.training.objective.losses(self.network, prepared, 0)
            sum(losses.values()).backward()

        return {
            "CAMs": lambda: labeller.cams(images, present),
            "PAR and pseudo labels": lambda: labeller.pseudo(last, present, images, batch["box"]),
            "losses, forward and backward": learn,
            "AdamW": self.training.optimizer.step,
        }


def step_of(form: str, options: argparse.Namespace) -> Step:
    if form != "ToCo":
        return OurStep(form, options)
    torch.manual_seed(0)
    return ToCoStep(Path(options.toco), options.name, batch_of(options), options.energy)


def main() -> int:
    options = arguments()
    torch._dynamo.config.recompile_limit = 64  # every form compiles the same functions
    if options.threads:
        torch.set_num_threads(options.threads)
    place = device(options.device)
    torch.set_float32_matmul_precision("high" if place.type == "cuda" else "highest")
    if options.peak_of:
        print(peak_bytes(step_of(options.peak_of, options), place))
        return 0
    ours = [form for form in FORMS if form == "plain" or form in options.forms]
    forms = [*ours, *(["ToCo"] if options.toco else [])]  # ToCo last: it registers over timm's
    steps = {form: step_of(form, options) for form in forms}
    gap = compared(steps) if options.toco else 0.0
    ms = scaled(interleaved(steps, options.rounds, clock(place)), 1e3)
    mb = {form: [peak_megabytes("--peak-of", form)] for form in forms}
    parts = scaled(interleaved(steps["plain"].parts(), options.rounds, clock(place)), 1e3)
    rows = []
    floors = {precision: floor_of(steps["plain"], precision) for precision in ("fp32", "bf16")}
    for form in ours:
        precision = FORMS[form][1]
        peer = {"peer": "ToCo", "theirs": ms["ToCo"], "goal": 4} if options.toco else {}
        rows.append(row(work_of(form, options), "ms", ms[form], **peer, note=floors[precision]))
        peer = {"peer": "ToCo", "theirs": mb["ToCo"]} if options.toco else {}
        rows.append(row(work_of(form, options), "MB", mb[form], **peer))
    rows += [row(f"part of a plain step: {part}", "ms", values) for part, values in parts.items()]
    save(rows)
    return int(not gap <= TOLERANCE)


def work_of(form: str, options: argparse.Namespace) -> str:
    energy = "" if options.energy else ", no L_reg"
    return f"WSSS step, {form}, {options.name}, {options.batch} × {options.crop}²{energy}"


def floor_of(step: Step, precision: str) -> str:
    """Estimates the time of a step's matrix products on a CPU by the rate of a single product."""
    if step.batch["image"].is_cuda:  # such a product is too small for a GPU
        return ""
    with FlopCounterMode(display=False) as counter:
        step()
    place = step.batch["image"].device
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    x, w = (torch.randn(size, device=place, dtype=dtype) for size in ((1768, 192), (768, 192)))
    seconds = interleaved({"product": lambda: F.linear(x, w)}, 50, clock(place))["product"]
    rate = 2 * x.numel() * len(w) / statistics.median(seconds)
    total = counter.get_total_flops()
    return (
        f"its {total / 1e9:.0f} GFLOP of matrix products alone take {1e3 * total / rate:.0f} ms "
        f"at the {rate / 1e9:.0f} GFLOP/s of such a product in {precision}"
    )


def compared(steps: dict[str, Step]) -> float:
    """Prints both losses before any step; returns the larger difference of both classifiers."""
    copy_weights(steps["ToCo"].network, steps["plain"].network)
    ours, theirs = steps["plain"](), steps["ToCo"]()
    shown = (f"{name} {ours[name]:.5f} {theirs[name]:.5f}" for name in ours)
    print(f"losses of plain and of ToCo: {', '.join(shown)}\n")
    return max(abs(ours[name] / theirs[name] - 1).item() for name in ("cls", "aux"))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--toco", help="a checkout of ToCo, whose step is run from there")
    parser.add_argument("--name", default="deit_tiny_patch16_224", help="backbone")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=[*FORMS])
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--no-energy", dest="energy", action="store_false", help="without L_reg")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)  # form
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
