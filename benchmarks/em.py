"""EM, HEM and external attention beside self-attention: time and memory over the tokens.

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

import torch
import torch.nn.functional as F
from measure import in_fresh_process, interleaved, median_ratio, peak_bytes, text
from torch import Tensor, nn

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.em import EM
from oversmoothing.aggregators.external import External
from oversmoothing.aggregators.external_multihead import ExternalMultiHead
from oversmoothing.errors import InputError
from oversmoothing.launch.script import run_script
from oversmoothing.store.environment import device

HEM = {"step_size": 0.5, "temperature": "sqrt_dim", "l2": False, "gradients": True}


def attention(x: Tensor) -> Tensor:
    """Fused. Shapes: (B, N, C) -> (B, N, C), here and below."""
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]


def explicit(x: Tensor) -> Tensor:
    """With the N×N matrix."""
    return (x @ x.mT / math.sqrt(x.shape[-1])).softmax(dim=-1) @ x


FORMS: dict[str, Callable[[int], Callable[[Tensor], Tensor]]] = {
    "attention": lambda C: attention,
    "explicit": lambda C: explicit,
    "em": lambda C: EM(C),
    "hem": lambda C: EM(C, **HEM),
    "external": External,
    "external_multihead": ExternalMultiHead,
}


class Layer:
    """One form on tokens of one size."""

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
        """Forward and, where a gradient passes, backward."""
        out = self.form(self.x, Context()) if self.is_module else self.form(self.x)
        if out.requires_grad:
            out.backward(self.upstream)
        self.x.grad = None


def main() -> int:
    options = arguments()
    if options.peak_of:
        print(peak(options))
        return 0
    print(
        f"batch {options.batch}, {options.channels} channels, float32, {device(options.device)}, "
        f"{torch.get_num_threads()} threads\n"
    )
    head = ["tokens", "form", "ms", "× attention", "MB", "× attention"]
    print(text([head, *(row for side in options.sides for row in rows_of(side, options))]))
    return 0


def rows_of(side: int, options: argparse.Namespace) -> list[list[str]]:
    """Time and memory of every form at one size."""
    layers = {name: Layer(name, side, options) for name in FORMS}
    seconds = interleaved({name: layer.step for name, layer in layers.items()}, options.rounds)
    memory = {name: in_fresh_process("--peak-of", name, str(side)) for name in FORMS}
    rows = []
    for name, values in seconds.items():
        time = [f"{1e3 * statistics.median(values):.1f}"]
        time.append(f"{median_ratio(values, seconds['attention']):.3f}")
        space = [f"{memory[name]:.0f}", f"{memory[name] / memory['attention']:.3f}"]
        rows.append(["" if rows else str(side * side), name, *time, *space])
    return rows


def peak(options: argparse.Namespace) -> int:
    """Bytes that one form needs at most, above its tokens."""
    name, side = options.peak_of
    Layer(name, 9, options).step()  # libraries that load at their first use
    layer = Layer(name, int(side), options)
    return peak_bytes(layer.step, layer.place)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sides", type=int, nargs="+", default=[17, 33], help="of the map")
    parser.add_argument("--channels", type=int, default=512)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)  # form, side
    options = parser.parse_args()
    if min(options.sides) < 8:
        raise InputError(f"--sides: expected 8 or more, for 64 bases, got {min(options.sides)}")
    return options


if __name__ == "__main__":
    run_script(main)
