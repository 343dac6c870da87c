"""Measures the dense energy loss with each of its filters: time, memory and error.

    python benchmarks/energy.py --images data/VOC2012/JPEGImages
    python benchmarks/energy.py --sides 448 --device cuda --rounds 20

A step is forward and backward of a batch at full size; filtering is at half size. Without --images,
images are smooth random colours. ToCo's own filter is C++ that must be built by hand and is not run
here; `toco` computes the same lattice with tensors.

On a busy machine set OMP_NUM_THREADS=1.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from measure import clock, interleaved, peak_bytes, peak_megabytes, scaled
from PIL import Image
from record import Row, parser_of, row, save
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device
from oversmoothing.lab.tasks.wsss.energy import dense_energy

FILTERS = ["lattice", "toco", "exact"]


class Batch:
    """A batch of images, logits of 21 classes, and pseudo labels with ignored pixels."""

    def __init__(self, options: argparse.Namespace, side: int) -> None:
        B, place = options.batch, device(options.device)
        torch.manual_seed(0)
        self.images = _images(options, side).to(place)
        logits = 3 * torch.randn(B, 21, side // 16, side // 16)
        logits = F.interpolate(logits, (side, side), mode="bilinear")
        self.labels = logits.argmax(dim=1).masked_fill_(torch.rand(B, 1, side) < 0.2, 255).to(place)
        self.logits = logits.to(place).requires_grad_()
        self.box = torch.tensor([[0, side, 0, side]] * B, device=place)

    def energy(self, filter: str) -> tuple[Tensor, Tensor]:
        """Computes the value and its gradient with respect to the logits."""
        value = dense_energy(self.images, self.logits, self.labels, self.box, filter=filter)
        return value.detach(), torch.autograd.grad(value, self.logits)[0]


def _images(options: argparse.Namespace, side: int) -> Tensor:
    """Returns corners of photographs or smooth noise. Shapes: -> (B, 3, side, side)."""
    B = options.batch
    if not options.images:
        return F.interpolate(torch.rand(B, 3, side // 8, side // 8), (side, side), mode="bilinear")
    paths = sorted(Path(options.images).glob("*.jpg"))
    if len(paths) < B:
        raise InputError(f"--images: expected at least {B} .jpg files in {options.images}")
    photographs = [Image.open(p).convert("RGB") for p in paths[:: len(paths) // B][:B]]
    corners = [np.array(p.resize((side, side))) for p in photographs]
    return torch.from_numpy(np.stack(corners)).permute(0, 3, 1, 2) / 255


def main() -> int:
    options = arguments()
    if options.peak_of:
        print(peak(options))
        return 0
    rows = [row for side in options.sides for row in rows_of(side, options)]
    save(rows)
    return 0


def rows_of(side: int, options: argparse.Namespace) -> list[Row]:
    """Measures time, memory and error of every filter at one size, relative to the exact one."""
    batch = Batch(options, side)
    steps = {name: lambda name=name: batch.energy(name) for name in FILTERS}
    ms = scaled(interleaved(steps, options.rounds, clock(device(options.device))), 1e3)
    mb = {name: [peak_megabytes("--peak-of", name, str(side))] for name in FILTERS}
    value, gradient = batch.energy("exact")
    rows = []
    for name in FILTERS[:-1]:
        found, slope = batch.energy(name)
        error = (slope - gradient).norm() / gradient.norm()
        note = f"{found / value:.3f} of the exact value, {error:.3f} relative error of the gradient"
        work = f"L_reg, filter {name}, {options.batch} × {side}²"
        rows.append(row(work, "ms", ms[name], peer="exact", theirs=ms["exact"], note=note))
        rows.append(row(work, "MB", mb[name], peer="exact", theirs=mb["exact"]))
    return rows


def peak(options: argparse.Namespace) -> int:
    """Measures the peak memory of one filter in bytes, above the batch."""
    name, side = options.peak_of
    Batch(argparse.Namespace(**{**vars(options), "images": None}), 32).energy(name)
    batch = Batch(options, int(side))
    return peak_bytes(lambda: batch.energy(name), batch.images.device)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--images", help="folder of .jpg files")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--sides", type=int, nargs="+", default=[224, 448], help="of the crop")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)  # filter, side
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
