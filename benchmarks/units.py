"""EM, external attention and ContraNorm beside their official codes: time and memory.

    python benchmarks/units.py --emanet DIR --eanet DIR --contranorm DIR
    python benchmarks/units.py --contranorm DIR --device cuda --batch 64 --rounds 30

DIR: checkouts of github.com/XiaLiPKU/EMANet, MenghaoGuo/EANet and PKU-ML/ContraNorm. Same weights,
same input, forward and backward in training; units of a CNN with their 1×1 convolutions, on maps of
side × side pixels. EMANet moves its bases elsewhere in its code; that is left out of both sides.

On a busy machine set OMP_NUM_THREADS=1. Exit code 1 when two forms disagree.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import official_units
import torch
from measure import in_fresh_process, interleaved, median_ratio, peak_bytes, text
from official_units import Pair
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.launch.script import run_script
from oversmoothing.store.environment import device

UNITS = {
    "EMANet's unit": ("emanet", official_units.emanet),
    "EANet's unit": ("eanet", official_units.eanet),
    "EAMLP's attention": ("eanet", official_units.eamlp),
    "ContraNorm, ViT": ("contranorm", official_units.contranorm_vit),
    "ContraNorm, BERT": ("contranorm", official_units.contranorm_bert),
}
TOLERANCE = 1e-10


@torch.no_grad()
def made(name: str, options: argparse.Namespace) -> Pair:
    torch.manual_seed(0)
    checkout, make = UNITS[name]
    return make(Path(getattr(options, checkout)), options.side)


def steps(
    pair: Pair, options: argparse.Namespace, dtype: torch.dtype = torch.float32
) -> dict[str, Callable[[], tuple[Tensor, Tensor]]]:
    """Forward and backward of both; each gives what came out, and the gradient to the input."""
    place = {"dtype": dtype, "device": device(options.device)}
    for module in (pair.theirs, pair.ours):
        module.to(**place).train()
    x = torch.randn(options.batch, *pair.shape, **place).relu_().requires_grad_()
    upstream = torch.randn(x.shape, **place)

    def step(form: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        x.grad = None
        out = form(x)
        out.backward(upstream)
        return out.detach(), x.grad

    return {name: lambda form=form: step(form) for name, form in pair.forms().items()}


def main() -> int:
    options = arguments()
    if options.peak_of:
        name, form = options.peak_of
        print(peak_bytes(steps(made(name, options), options)[form], device(options.device)))
        return 0
    print(f"batch {options.batch}, float32, {device(options.device)}\n")
    table, gap = [["", "ours, ms", "official ×", "ours, MB", "official ×", "difference"]], 0.0
    for name in [name for name, (checkout, _) in UNITS.items() if getattr(options, checkout)]:
        line, found = row(name, options)
        table.append(line)
        gap = max(gap, found)
    print(text(table))
    return int(not gap <= TOLERANCE)


def difference(pair: Pair, options: argparse.Namespace) -> float:
    """The largest, of outputs and gradients, in float64, where no ReLU takes another side."""
    both = [step() for step in steps(pair, options, torch.float64).values()]
    return max(((a - b).abs().max() / a.abs().max()).item() for a, b in zip(*both))


def row(name: str, options: argparse.Namespace) -> tuple[list[str], float]:
    """A line of the table, and how far the two forms differ."""
    pair = made(name, options)
    gap, forms = difference(pair, options), steps(pair, options)
    seconds = interleaved(forms, options.rounds)
    memory = {form: in_fresh_process("--peak-of", name, form) for form in forms}
    time = statistics.median(seconds["ours"])
    line = [name, f"{1e3 * time:.1f}", f"{median_ratio(seconds['official'], seconds['ours']):.2f}"]
    space = [f"{memory['ours']:.0f}", f"{memory['official'] / memory['ours']:.2f}"]
    return [*line, *space, f"{gap:.1e}"], gap


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for checkout in ("emanet", "eanet", "contranorm"):
        parser.add_argument(f"--{checkout}", help="a checkout, whose code is run from there")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--side", type=int, default=33, help="of the map that a unit sees")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)  # unit, form
    options = parser.parse_args()
    if not (options.emanet or options.eanet or options.contranorm):
        raise InputError("give --emanet, --eanet or --contranorm: a checkout to compare with")
    return options


if __name__ == "__main__":
    run_script(main)
