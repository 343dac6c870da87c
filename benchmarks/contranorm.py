"""Compares ContraNorm on graphs with N×N masks, and measures it on graphs too large for masks.

    python benchmarks/contranorm.py
    python benchmarks/contranorm.py --nodes 169343 --edges 1166243 --channels 32 --negatives 1024
    python benchmarks/contranorm.py --nodes 169343 --edges 1166243 --channels 128   # exact: minutes

Without ``--nodes``: forward and backward of five seeds on Cora and Squirrel, compared with fused
attention under a boolean N×N mask, and float32 compared with products in bfloat16
(``matmul=medium``). |Δ| is the largest difference of outputs and gradients, relative to the largest
value. With ``--nodes``: one seed on a random graph, once, and the peak memory above graph and
input. All times are CPU seconds, which other processes disturb less than wall time; set
OMP_NUM_THREADS=1.
"""

import argparse
import os
import time
from functools import partial
from itertools import pairwise, product

import floors
import record
import torch
import torch.nn.functional as F
from measure import interleaved, peak_bytes, peak_megabytes
from torch import Tensor

from oversmoothing.aggregators.base import Context
from oversmoothing.aggregators.contranorm import ContraNorm
from oversmoothing.lab.data import planetoid
from oversmoothing.lab.data.graph import symmetrised
from oversmoothing.lab.launch.script import run_script

SEEDS, CHANNELS, WIDE = 5, 32, 64


def main() -> None:
    options = arguments()
    if options.nodes:
        return on_random(options)
    root = os.environ.get("DATA_ROOT") or "data"
    for name, channels in product(("cora", "squirrel"), (CHANNELS, WIDE)):
        edges = planetoid.load(name, root=root).edges
        forms = in_all_forms(with_loops(edges, int(edges.max()) + 1), channels)
        if not options.peak_of:
            rows = measured(name, channels, forms, options.rounds)
            record.save(rows)
        elif options.peak_of[:2] == [name, str(channels)]:
            return print(peak_bytes(forms[options.peak_of[2]], torch.device("cpu")))


def with_loops(edges: Tensor, num_nodes: int) -> Context:
    loops = torch.arange(num_nodes).expand(2, -1)
    return Context(edges=torch.cat([edges, loops], dim=1), num_nodes=num_nodes)


def in_all_forms(context: Context, channels: int) -> dict:
    """Returns the forward and backward pass of each implementation."""
    N = context.num_nodes
    x = torch.randn(SEEDS, N, channels, requires_grad=True)
    upstream = torch.randn_like(x)
    layer, mask = ContraNorm(channels), []

    def attention() -> Tensor:
        if not mask:
            mask.append(torch.ones(N, N, dtype=torch.bool))
            mask[0][context.edges[0], context.edges[1]] = False
        q, v = F.normalize(x, dim=-1)[:, None], x[:, None]
        mixed = F.scaled_dot_product_attention(q, q, v, attn_mask=mask[0], scale=1.0)
        return 2 * x - mixed[:, 0]

    def in_bf16() -> Tensor:
        torch.set_float32_matmul_precision("medium")  # the backward pass uses it, too
        out = layer(x, context)
        torch.set_float32_matmul_precision("highest")
        return out

    def step(form) -> tuple[Tensor, Tensor]:
        out = form()
        return out.detach(), torch.autograd.grad(out, x, upstream)[0]

    return {
        "tiles": lambda: step(lambda: layer(x, context)),
        "bf16": lambda: step(in_bf16),
        "mask": lambda: step(attention),
        "products": lambda: floors.contrast(x.detach(), context.neighbours.tiles[-1]),
    }


def measured(name: str, channels: int, forms: dict, rounds: int) -> list[record.Row]:
    seconds = interleaved(forms, rounds, time.process_time)
    peak = partial(peak_megabytes, "--peak-of", name, str(channels))
    peaks = [[peak(form)] for form in ("tiles", "mask")]
    work = f"ContraNorm on {name}, {SEEDS} seeds of {channels} channels, forward and backward"
    floor = floors.note(*(seconds[form] for form in ("tiles", "products", "mask")))
    mask = {"peer": "fused attention under an N × N mask"}
    note = f"they differ by {gap(forms, 'tiles', 'mask'):.0e}; {floor}"
    exact = {"peer": "products in float32", "note": f"differ by {gap(forms, 'bf16', 'tiles'):.0e}"}
    tiles, bf16 = seconds["tiles"], seconds["bf16"]
    return [
        record.row(work, "CPU s", tiles, theirs=seconds["mask"], note=note, **mask),
        record.row(work, "peak MB", peaks[0], theirs=peaks[1], **mask),
        record.row(f"{work}, matmul=medium", "CPU s", bf16, theirs=tiles, **exact),
    ]


def gap(forms: dict, form: str, other: str) -> float:
    """Returns the largest difference of outputs and gradients, relative to the largest value."""
    pairs = zip(forms[form](), forms[other]())
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


def on_random(options: argparse.Namespace) -> None:
    """Measures one forward and one backward pass on a random graph."""
    N, C = options.nodes, options.channels
    context = with_loops(symmetrised(torch.randint(N, (2, options.edges)), N), N)
    layer = ContraNorm(C, negatives=options.negatives)
    x = torch.randn(N, C, requires_grad=True)
    upstream, times = torch.randn(N, C), [time.process_time()]

    def step() -> None:
        assert context.neighbours.symmetric  # sorts them, once per network
        times.append(time.process_time())
        out = layer(x, context)
        times.append(time.process_time())
        out.backward(upstream)
        times.append(time.process_time())

    peak = peak_bytes(step, torch.device("cpu")) / 1e6
    _, *seconds = (later - earlier for earlier, later in pairwise(times))
    compared = f"{options.negatives} negatives" if options.negatives else "all nodes"
    work = f"ContraNorm, {N:,} nodes, {options.edges:,} edges, C = {C}, {compared}"
    names = ("forward, CPU s", "backward, CPU s", "peak MB")
    rows = [record.row(work, *pair) for pair in zip(names, [[v] for v in (*seconds, peak)])]
    record.save(rows)


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--edges", type=int, default=1_166_243, help="each in both directions")
    parser.add_argument("--channels", type=int, default=CHANNELS)
    parser.add_argument("--negatives", type=int, help="default: all nodes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peak-of", nargs=3, help=argparse.SUPPRESS)  # graph, C, form
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
