"""Compares Figure 1's grid of γ with a loop over γ, and with the machine's matrix rate.

    OMP_NUM_THREADS=1 python benchmarks/fig1.py

A panel of Figure 1: Pre-LN, uniform weights, 100 tokens of 100 channels, 61 values of γ, float64.
`ours` simulates all γ at once, as train.py does. The loop takes one γ after another, forms the
softmax matrix, and computes the rank by an SVD. Only the first of the 2,000 layers are run. The
rate is that of a product of 1,000 × 1,000 matrices in the same rounds.
"""

import statistics
import time

import record
import torch
from measure import interleaved
from torch import Tensor

from oversmoothing.aggregators.centered import Centered
from oversmoothing.lab.backbones.transformer import RandomTransformer, RandomWeights, normalise_rows
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.tasks.rank import _measure, gamma_grid

N = 100  # tokens and channels
GRID = gamma_grid("-1.5:1.5:0.05")
Curves = list[Tensor]


def main() -> int:
    parser = record.parser_of(__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    big, L = torch.randn(1000, 1000, dtype=torch.float64), options.layers
    steps = {
        "ours": lambda: ours(L, measured=True),
        "without measuring": lambda: ours(L, measured=False),
        "loop": lambda: loop(L),
        "product": lambda: big @ big,
    }
    same = all(torch.equal(a, b) for a, b in zip(ours(L, True), loop(L)))
    seconds = interleaved(steps, options.rounds, time.process_time)
    rate = 2 * 1000**3 / statistics.median(seconds["product"])
    flops = 10 * N**3 * len(GRID) * L  # three products with weights, two of attention
    shares = [100 * flops / s / rate for s in seconds["without measuring"]]
    measuring = [100 * (1 - b / a) for a, b in zip(seconds["ours"], seconds["without measuring"])]
    floor = statistics.median(seconds["loop"]) / (flops / rate)
    work = f"Figure 1, {len(GRID)} values of γ, {L} layers"
    note = (
        f"{statistics.median(measuring):.0f} % of our time are eigenvalues, which LAPACK finds "
        f"matrix by matrix; without them, at the machine's matrix rate, it would be {floor:.0f}×"
    )
    about = {"peer": "a loop over γ", "theirs": seconds["loop"], "goal": 20.0, "note": note}
    rows = [
        record.row(work, "CPU s", seconds["ours"], **about),
        record.row(work, "% of the machine's matrix rate, without measuring", shares),
    ]
    record.save(rows)
    print("the ranks agree" if same else "error: the ranks differ")
    return int(not same)


def ours(layers: int, measured: bool) -> Curves:
    """Returns the ranks after every layer, each (1, G)."""
    gamma = torch.tensor(GRID, dtype=torch.float64).view(-1, 1, 1)
    model = RandomTransformer([lambda: Centered(gamma)], [0], depth=layers, copies=len(GRID))
    return [_measure(output)["rank"] if measured else output for output in model.outputs()]


@torch.no_grad()
def loop(layers: int) -> Curves:
    """Returns the ranks after every layer, one γ after another."""
    by_gamma = []
    for gamma in GRID:
        generators = [torch.Generator().manual_seed(0)]
        weights = RandomWeights(generators, N, "uniform", 1.0, False, "drawn")
        x, ranks = torch.eye(N, dtype=torch.float64), []
        for _ in range(layers):
            w_q, w_k, w_v = (w[0] for w in weights.next_layer("cpu", torch.float64))
            h = normalise_rows(x)
            mixing = ((h @ w_q) @ (h @ w_k).T / N**0.5).softmax(dim=-1)
            x = (mixing + gamma / N) @ (h @ w_v) + x
            ranks.append(rank(normalise_rows(x)))
        by_gamma.append(torch.stack(ranks))
    return [*torch.stack(by_gamma, dim=1)[:, None]]


def rank(x: Tensor) -> Tensor:
    """Returns the rank as defined in the figure; also computes the other curves of ours."""
    sigma = torch.linalg.svdvals(x / x.norm())
    share = sigma / sigma.sum()
    unit = normalise_rows(x)
    torch.stack([-(share * share.log()).nansum().exp(), (unit @ unit.T).mean(), x.var()])
    return (sigma > 1e-3).sum().double()


if __name__ == "__main__":
    run_script(main)
