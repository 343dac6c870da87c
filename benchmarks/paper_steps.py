"""Measures training steps at the papers' sizes on a GPU; paper_sizes.py only counts them.

    python benchmarks/paper_steps.py
    python benchmarks/paper_steps.py --works BERT "EAMLP-7" --rounds 20

A step is forward, backward and fused AdamW with random weights and inputs, in float32 (TF32
products) and with trainer.precision=bf16. Hours are those of the experiment's recipe, without
reading data and without evaluation. Works that do not fit into the memory of the GPU have no values
for that precision.
"""

import argparse
import gc
from collections.abc import Callable
from functools import partial

import record
import torch
from measure import clock, interleaved, peak_bytes, scaled
from paper_sizes import WORKS, Work, network_of
from torch import nn
from torch.utils._pytree import tree_map_only

from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.environment import device

PRECISIONS = ("float32", "bf16")


def main() -> None:
    options = arguments()
    place = device(options.device)
    torch.set_float32_matmul_precision("high")
    for work in (work for work in WORKS if any(name in work.name for name in options.works)):
        rows = []
        for precision in PRECISIONS:
            try:
                rows += rows_of(work, precision, place, options.rounds)
            except torch.OutOfMemoryError:
                print(f"{work.name}: does not fit in {precision}")
            gc.collect()
            torch.cuda.empty_cache()
        record.save(rows)


def rows_of(work: Work, precision: str, place: torch.device, rounds: int) -> list[record.Row]:
    """Measures time and memory of a work's step."""
    step, weights = step_of(work, precision, place)
    memory = peak_bytes(step, place) + weights
    ms = scaled(interleaved({"step": step}, rounds, clock(place)), 1e3)["step"]
    hours = [value * work.steps / 3.6e6 for value in ms]
    return [
        record.row(work.name, f"ms per step, {precision}", ms),
        record.row(work.name, f"GB, {precision}", [memory / 1e9]),
        record.row(work.name, f"hours, {precision}", hours),
    ]


def step_of(work: Work, precision: str, place: torch.device) -> tuple[Callable[[], None], int]:
    """Returns a training step on new weights, and the bytes of the weights."""
    torch.manual_seed(0)
    network = network_of(work.words).to(place).train()
    inputs = tree_map_only(torch.Tensor, lambda x: x.to(place), work.inputs())
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-6, fused=True)
    weights = 4 * sum(p.numel() for p in network.parameters())
    return partial(step, work, network, inputs, optimizer, precision == "bf16"), weights


def step(
    work: Work, network: nn.Module, inputs: tuple, optimizer: torch.optim.Optimizer, bf16: bool
) -> None:
    optimizer.zero_grad()
    with torch.autocast(inputs[0].device.type, torch.bfloat16, enabled=bf16):
        with torch.no_grad():
            work.before(network, *inputs)
        loss = work.loss(network(*inputs))
    loss.backward()
    optimizer.step()


def arguments() -> argparse.Namespace:
    parser = record.parser_of(__doc__)
    parser.add_argument("--works", nargs="+", default=[""], help="parts of names; default: all")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, cpu")
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args()


if __name__ == "__main__":
    run_script(main)
