"""Compares EM, HEM and external attention with self-attention: time and memory over the tokens.

    python benchmarks/em.py
    python benchmarks/em.py --device cuda --sides 33 65 97 --batch 4 --rounds 20

Tokens are the pixels of a side × side map: 33 and 65 are a crop of 513² at output strides 16 and
8. Forward and backward to the tokens. `em` passes no gradient, so it only goes forward; the units'
1×1 convolutions are left out. `attention` is one fused head with query, key and value the tokens;
`explicit` forms its N×N matrix.

On a busy machine set OMP_NUM_THREADS=1: threads that wait for a core distort the ratios.
"""

import argparse
import math
import statistics
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from measure import clock, interleaved, peak_bytes, peak_megabytes, scaled
from record import Row, parser_of, row, save
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.external import External
from oversmoothing.aggregators.external_multihead import ExternalMultiHead
from oversmoothing.errors import InputError
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device

HEM = {"step_size": 0.5, "temperature": "sqrt_dim", "l2": False, "gradients": True}


def attention(x: Tensor) -> Tensor:
    """Computes fused attention. Shapes: (B, N, C) -> (B, N, C), here and below."""
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]


def explicit(x: Tensor) -> Tensor:
    """Computes attention with the N×N matrix."""
    return (x @ x.mT / math.sqrt(x.shape[-1])).softmax(dim=-1) @ x


FORMS: dict[str, Callable[[int], Callable[[Tensor], Tensor]]] = {
    "attention": lambda C: attention,
    "explicit": lambda C: explicit,
    "em": lambda C: EM(C),
    "hem": lambda C: EM(C, **HEM),
    "external": External,
    "external_multihead": ExternalMultiHead,
}


QUADRATIC = ("attention", "explicit")
LARGEST_QUADRATIC = 4096  # tokens up to which they are run


class Layer:
    """One implementation on one number of tokens."""

    def __init__(self, name: str, side: int, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.place = device(options.device)
        shape = (options.batch, side * side, options.channels)
        self.x = torch.randn(shape, device=self.place).requires_grad_()
        self.upstream = torch.randn(shape, device=self.place)
        form = FORMS[name](options.channels)
        self.is_module = isinstance(form, nn.Module)
        self.form = form.to(self.place) if self.is_module else form

    def step(self) -> None:
        """Runs forward and, if gradients flow, backward."""
        out = self.form(self.x, Context()) if self.is_module else self.form(self.x)
        if out.requires_grad:
            out.backward(self.upstream)
        self.x.grad = None


def main() -> int:
    options = arguments()
    if options.peak_of:
        print(peak(options))
        return 0
    ms: dict[str, list[list[float]]] = {form: [] for form in FORMS}
    mb: dict[str, list[list[float]]] = {form: [] for form in FORMS}
    for side in options.sides:
        layers = {form: Layer(form, side, options) for form in FORMS if fits(form, side)}
        seconds = interleaved(
            {form: layer.step for form, layer in layers.items()},
            options.rounds,
            clock(device(options.device)),
        )
        for form, values in scaled(seconds, 1e3).items():
            ms[form].append(values)
            mb[form].append([peak_megabytes("--peak-of", form, str(side))])
    rows = [row for form in FORMS for row in rows_of(form, ms, mb, options.sides)]
    save(rows)
    return 0


def fits(form: str, side: int) -> bool:
    return form not in QUADRATIC or side**2 <= LARGEST_QUADRATIC


def rows_of(
    form: str,
    ms: dict[str, list[list[float]]],
    mb: dict[str, list[list[float]]],
    sides: list[int],
) -> list[Row]:
    """Returns time and memory at the largest size, and their slopes over the tokens."""
    sides = [side for side in sides if fits(form, side)]
    rows = []
    for unit, found in (("ms", ms[form]), ("MB", mb[form])):
        rows.append(row(f"{form}, {sides[-1] ** 2:,} tokens", unit, found[-1]))
        if len(sides) > 1:
            tokens = np.log([side**2 for side in sides])
            slope = np.polyfit(tokens, np.log([statistics.median(v) for v in found]), 1)[0]
            most = {} if form in QUADRATIC else {"goal": 1.1}
            span = f"{form}, {sides[0] ** 2:,} to {sides[-1] ** 2:,} tokens"
            rows.append(row(span, f"exponent of {unit}", [float(slope)], **most))
    return rows


def peak(options: argparse.Namespace) -> int:
    """Measures the peak memory of one implementation in bytes, above its tokens."""
    name, side = options.peak_of
    Layer(name, 9, options).step()  # loads libraries
    layer = Layer(name, int(side), options)
    return peak_bytes(layer.step, layer.place)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sides", type=int, nargs="+", default=[32, 64, 128], help="of the map")
    parser.add_argument("--channels", type=int, default=512)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)  # form, side
    options = parser.parse_args()
    if min(options.sides) < 8:
        raise InputError(f"--sides: expected 8 or more, for 64 bases, got {min(options.sides)}")
    return options


if __name__ == "__main__":
    run_script(main)
