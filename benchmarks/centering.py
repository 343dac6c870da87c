"""Compares centered attention with plain fused attention and with the explicit N×N matrix.

    python benchmarks/centering.py
    python benchmarks/centering.py --tokens 16384 --heads 1 --rounds 3
    python benchmarks/centering.py --device cuda --dtype bfloat16 --batch 64 --rounds 50

q, k and v are views of one (B, N, 3, H, C) tensor and the heads are merged at the end, as in a ViT.
`centered` is what a backbone computes: fused attention, then the aggregator. `explicit` forms
softmax(QKᵀ/√C) + γ 11ᵀ/N and multiplies.

On a busy machine set OMP_NUM_THREADS=1: threads that wait for a core distort the ratios.
Exit code 1 when `centered` and `explicit` disagree.
"""

import argparse
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from measure import clock, interleaved, peak_bytes, peak_megabytes, scaled
from record import Row, parser_of, row, save
from torch import Tensor

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.centered import Centered
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device

GAMMA = -1.0
LARGEST_EXPLICIT = 1024  # tokens up to which the N × N form is run
TOLERANCE = {"float32": 1e-5, "bfloat16": 5e-2, "float16": 5e-3}
CENTERED = Centered(GAMMA)
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Fused attention. Shapes: 3 × (B, H, N, C) -> (B, H, N, C), here and below."""
    return F.scaled_dot_product_attention(q, k, v)


def centered(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Fused attention and the aggregator."""
    return CENTERED(F.scaled_dot_product_attention(q, k, v), v, Context())


def explicit(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Computes the paper's formula literally."""
    N, C = q.shape[-2:]
    attention = (q @ k.mT / math.sqrt(C)).softmax(dim=-1)
    return (attention + GAMMA / N) @ v


FORMS: dict[str, Attention] = {"plain": plain, "centered": centered, "explicit": explicit}


class Layer:
    """Attention from q, k, v in one tensor to merged heads, forward and backward."""

    def __init__(self, options: argparse.Namespace) -> None:
        B, H, N, C = options.batch, options.heads, options.tokens, options.channels
        place = {"device": device(options.device), "dtype": getattr(torch, options.dtype)}
        torch.manual_seed(0)
        self.qkv = torch.randn(B, N, 3, H, C, **place).requires_grad_()
        self.upstream = torch.randn(B, N, H * C, **place)

    def output(self, attention: Attention) -> Tensor:
        """Shapes: -> (B, N, H·C)."""
        q, k, v = self.qkv.permute(2, 0, 3, 1, 4)
        return attention(q, k, v).transpose(1, 2).flatten(2)

    def both(self, attention: Attention) -> None:
        self.output(attention).backward(self.upstream)
        self.qkv.grad = None


def main() -> int:
    options = arguments()
    if options.peak_of:
        print(peak(options))
        return 0
    gap, rows = 0.0, []
    for N in list(options.tokens):
        options.tokens = N
        layer = Layer(options)
        rows += rows_of(layer, options)
        if N <= LARGEST_EXPLICIT:
            with torch.no_grad():
                gap = max(gap, (layer.output(centered) - layer.output(explicit)).abs().max().item())
    save(rows)
    print(f"largest difference of centered and explicit: {gap:.1e}")
    return int(not gap <= TOLERANCE[options.dtype])


def rows_of(layer: Layer, options: argparse.Namespace) -> list[Row]:
    """Time and memory of forward and backward for one number of tokens."""
    N = options.tokens
    forms = [form for form in FORMS if form != "explicit" or N <= LARGEST_EXPLICIT]
    steps = {form: lambda form=form: layer.both(FORMS[form]) for form in forms}
    ms = scaled(interleaved(steps, options.rounds, clock(layer.qkv.device)), 1e3)
    mb = {form: [peak_megabytes("--peak-of", form, str(N))] for form in forms}
    work, shape = "attention", f"{options.batch} × {options.heads} × {N} × {options.channels}"
    rows = []
    for measure, found in ((f"ms, {shape}", ms), (f"MB, {shape}", mb)):
        fused = {"peer": "fused attention", "theirs": found["plain"], "overhead": True}
        rows.append(row(f"centered {work}", measure, found["centered"], **fused, goal=1.05))
        if "explicit" in found:
            formed = {"peer": "with the N × N matrix", "theirs": found["explicit"]}
            rows.append(row(f"centered {work}", measure, found["centered"], **formed))
    return rows


def peak(options: argparse.Namespace) -> int:
    """Measures the peak memory of one implementation in bytes, including its inputs."""
    form, options.tokens = options.peak_of[0], int(options.peak_of[1])
    chosen = device(options.device)
    small = argparse.Namespace(**{**vars(options), "batch": 1, "heads": 1, "tokens": 8})
    Layer(small).both(FORMS[form])  # loads libraries
    return peak_bytes(lambda: Layer(options).both(FORMS[form]), chosen)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--tokens", type=int, nargs="+", default=[196, 785, 3136])
    parser.add_argument("--channels", type=int, default=64, help="of a head")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)  # form, tokens
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
