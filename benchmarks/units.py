"""Compares time and memory of EM, external attention and ContraNorm with their official codes.

    python benchmarks/units.py --emanet DIR --eanet DIR --contranorm DIR
    python benchmarks/units.py --contranorm DIR --device cuda --batch 64 --rounds 30

DIR: checkouts of github.com/XiaLiPKU/EMANet, MenghaoGuo/EANet and PKU-ML/ContraNorm. Both sides
have the same weights and inputs, and run forward and backward in training. Units of a CNN include
their 1×1 convolutions, on maps of side × side pixels. The update of EMANet's bases is left out on
both sides, since it is elsewhere in its code.

On a busy machine set OMP_NUM_THREADS=1. Exit code 1 if two implementations disagree.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import official_units
import torch
from measure import clock, interleaved, peak_bytes, peak_megabytes, scaled
from official_units import Pair
from record import Row, parser_of, row, save
from torch import Tensor

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device

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
    """Returns forward and backward of both; each returns outputs and the gradient of the input."""
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
    rows, gap = [], 0.0
    for name in [name for name, (checkout, _) in UNITS.items() if getattr(options, checkout)]:
        found, difference = rows_of(name, options)
        rows, gap = rows + found, max(gap, difference)
    save(rows)
    print(f"largest difference: {gap:.1e}")
    return int(not gap <= TOLERANCE)


def difference(pair: Pair, options: argparse.Namespace) -> float:
    """Returns the largest difference of outputs and gradients in float64, so no ReLU flips."""
    both = [step() for step in steps(pair, options, torch.float64).values()]
    return max(((a - b).abs().max() / a.abs().max()).item() for a, b in zip(*both))


def rows_of(name: str, options: argparse.Namespace) -> tuple[list[Row], float]:
    """Measures time, memory and the difference of both implementations."""
    pair = made(name, options)
    gap, forms = difference(pair, options), steps(pair, options)
    ms = scaled(interleaved(forms, options.rounds, clock(device(options.device))), 1e3)
    mb = {form: [peak_megabytes("--peak-of", name, form)] for form in forms}
    official = {"peer": f"{UNITS[name][0]}'s code", "goal": 0.95}
    return [
        row(name, f"{unit}, batch {options.batch}", found["ours"], theirs=found["official"],
            **official)
        for unit, found in (("ms", ms), ("MB", mb))
    ], gap  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
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
