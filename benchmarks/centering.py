"""Centered attention beside plain fused attention and beside the explicit N×N matrix.

    python benchmarks/centering.py
    python benchmarks/centering.py --device cuda --dtype bfloat16 --batch 64 --rounds 50

q, k and v are views of one (B, N, 3, H, C) tensor and the heads are merged at the end, as in a ViT.
`centered` is what a backbone computes: fused attention, then the aggregator. `explicit` forms
softmax(QKᵀ/√C) + γ 11ᵀ/N and multiplies.

On a busy machine set OMP_NUM_THREADS=1: threads that wait for a core distort the ratios.
Exit code 1 when `centered` and `explicit` disagree.
"""

import argparse
import math
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from measure import in_fresh_process, interleaved, median_ratio, peak_bytes, text
from torch import Tensor

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.centered import Centered
from oversmoothing.launch.script import run_script
from oversmoothing.store.environment import device

GAMMA = -1.0
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
    """The paper's formula as it stands."""
    N, C = q.shape[-2:]
    attention = (q @ k.mT / math.sqrt(C)).softmax(dim=-1)
    return (attention + GAMMA / N) @ v


FORMS: dict[str, Attention] = {"plain": plain, "centered": centered, "explicit": explicit}


class Layer:
    """Attention from q, k, v in one tensor to merged heads, forward or forward and backward."""

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

    def forward(self, attention: Attention) -> None:
        with torch.no_grad():
            self.output(attention)

    def both(self, attention: Attention) -> None:
        self.output(attention).backward(self.upstream)
        self.qkv.grad = None


PASSES = {"forward": Layer.forward, "forward + backward": Layer.both}


def main() -> int:
    options = arguments()
    if options.peak_of:
        print(peak(options))
        return 0
    layer = Layer(options)
    shape = f"{options.batch}×{options.heads} heads × {options.tokens} tokens × {options.channels}"
    print(f"{shape}, {options.dtype}, {layer.qkv.device}, {torch.get_num_threads()} threads\n")
    head = ["", "form", "ms", "× plain", "MB", "× plain"]
    rows = [row for kind in PASSES for row in rows_of(kind, layer, options)]
    print(text([head, *rows]))
    with torch.no_grad():
        gap = (layer.output(centered) - layer.output(explicit)).abs().max().item()
    print(f"\nlargest difference of centered and explicit: {gap:.1e}")
    return int(not gap <= TOLERANCE[options.dtype])


def rows_of(kind: str, layer: Layer, options: argparse.Namespace) -> list[list[str]]:
    """Time and memory of every form in one kind of pass."""
    step = PASSES[kind]
    steps = {name: lambda form=form: step(layer, form) for name, form in FORMS.items()}
    seconds = interleaved(steps, options.rounds)
    memory = {name: in_fresh_process("--peak-of", name, kind) for name in FORMS}
    rows = []
    for name, values in seconds.items():
        time = [f"{1e3 * statistics.median(values):.1f}"]
        time.append(f"{median_ratio(values, seconds['plain']):.3f}")
        space = [f"{memory[name]:.0f}", f"{memory[name] / memory['plain']:.3f}"]
        rows.append(["" if rows else kind, name, *time, *space])
    return rows


def peak(options: argparse.Namespace) -> int:
    """Bytes that one form needs at most, its inputs included."""
    name, kind = options.peak_of
    chosen = device(options.device)
    small = argparse.Namespace(**{**vars(options), "batch": 1, "heads": 1, "tokens": 8})
    PASSES[kind](Layer(small), FORMS[name])  # libraries that load at their first use
    return peak_bytes(lambda: PASSES[kind](Layer(options), FORMS[name]), chosen)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=785, help="784 patches of 448² and CLS")
    parser.add_argument("--channels", type=int, default=64, help="of a head")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--dtype", choices=TOLERANCE, default="float32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)  # form, kind of pass
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
