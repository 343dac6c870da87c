"""Measures what special cases for bfloat16 save in a training step of segmentation on a CPU.

    OMP_NUM_THREADS=1 python benchmarks/seg_step.py

The step is that of experiment=seg_voc_subset with random weights: MobileNetV2 at output stride 16,
a unit of EM, a head, and the loss over all pixels. Some depthwise convolutions are in float32
(``backbones/cnn/bf16.py``), and the loss is summed image by image
(``tasks/segmentation/task.py``). Exit code 1 if the losses with and without these differ.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
from measure import clock, interleaved, scaled
from record import parser_of, row, save
from torch import Tensor, nn

from oversmoothing.aggregators.em import EM
from oversmoothing.lab.backbones import cnn
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.tasks.segmentation import task
from oversmoothing.lab.tasks.segmentation.network import Segmenter

CPU = torch.device("cpu")
CONVOLUTIONS = {  # channels, side of the input, options
    "960 channels, 15², dilation 2": (960, 15, {"dilation": 2, "padding": 2}),
    "96 channels, 115², stride 2": (96, 115, {"stride": 2}),
    "144 channels, 59², stride 2": (144, 59, {"stride": 2}),
}
LABELS, TOLERANCE = 21, 1e-2


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for name, sizes in CONVOLUTIONS.items():
        steps = {form: convolution(options.batch, *sizes, form) for form in ("ours", "bf16")}
        ms = scaled(interleaved(steps, options.rounds, clock(CPU)), 1e3)
        work = f"depthwise 3 × 3 convolution, {name}, forward and backward"
        rows.append(row(work, "ms", ms["ours"], peer="torch in bf16", theirs=ms["bf16"]))
    whole = {form: step(options.batch, form) for form in ("ours", "bf16", "fp32")}
    losses = {form: float(run()) for form, run in whole.items()}
    ms = scaled(interleaved(whole, options.rounds, clock(CPU)), 1e3)
    for peer in ("bf16", "fp32"):
        work = f"segmentation step, MobileNetV2 with EM, {options.batch} × 225²"
        label = "bf16 without both" if peer == "bf16" else "fp32 without both"
        rows.append(row(work, "ms", ms["ours"], peer=label, theirs=ms[peer]))
    save(rows)
    print(f"losses before any step: {losses}")
    return int(max(losses.values()) - min(losses.values()) > TOLERANCE * losses["fp32"])


def convolution(batch: int, channels: int, side: int, how: dict, form: str) -> Callable[[], None]:
    conv = nn.Conv2d(channels, channels, 3, groups=channels, bias=False, **how)
    conv.to(memory_format=torch.channels_last)
    x = torch.randn(batch, channels, side, side).to(memory_format=torch.channels_last)
    x = x.bfloat16().requires_grad_()
    chosen = cnn.convolving if form == "ours" else lambda place: contextlib.nullcontext()

    def both() -> None:
        x.grad = conv.weight.grad = None
        with torch.autocast("cpu", torch.bfloat16), chosen(CPU):
            y = conv(x)
        y.backward(y.detach())

    return both


def step(batch: int, form: str) -> Callable[[], Tensor]:
    """Forward and backward pass of a network, with the same weights and images in each form."""
    torch.manual_seed(0)
    sizes = {"output_stride": 16, "multi_grid": None, "dim": 256}
    host = cnn.CNN([partial(EM, gradients=True)], name="mobilenetv2_100", weights="none", **sizes)
    network = Segmenter(host, LABELS, dropout=0.0).to(memory_format=torch.channels_last)
    part = {
        "image": torch.rand(batch, 3, 225, 225),
        "mask": torch.randint(0, LABELS, (batch, 225, 225)),
        "batch_size": batch,
    }

    def run() -> Tensor:
        network.zero_grad(set_to_none=True)
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", torch.bfloat16, enabled=form != "fp32"))
            if form != "ours":
                off = patch.object(cnn, "convolving", lambda place: contextlib.nullcontext())
                whole = patch.object(task, "_summed", task._summed_at_once)
                stack.enter_context(off)
                stack.enter_context(whole)
            loss = task.PixelCrossEntropy(0.0).losses(network, part, 0)["seg"]
        loss.backward()
        return loss.detach()

    return run


if __name__ == "__main__":
    run_script(main)
