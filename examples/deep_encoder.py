"""torch's TransformerEncoder with 24 layers, trained on digits, plain and with methods put into it.

python examples/deep_encoder.py                              # 3 seeds of each, two hours on a core
python examples/deep_encoder.py --methods none rezero --rates 1e-3 --seeds 0
python examples/deep_encoder.py --depth 12                   # writes deep_encoder_12.csv

The images are scikit-learn's digits, of 8 × 8 pixels: 1,437 for training, 360 for the test. Every
2 × 2 pixels are a token, of 16. The encoder has torch's defaults, so LayerNorms after the residual
sums, dropout 0.1 and layers that begin as copies of one; 64 channels, 4 heads and 128 hidden
channels. It is trained by AdamW for 300 steps with batches of 64, with a warm-up over 30 steps, a
linear decay to 0 and gradients clipped to a norm of 1. Nothing is chosen afterwards. Finished runs
are in the file, and are not run again.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path

import matplotlib
import panels
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn

import oversmoothing as osm
from oversmoothing.lab.drawing.files import save
from oversmoothing.lab.drawing.panels import LINES
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.files import read_csv

CHANNELS, TRAIN, BATCH = 64, 1437, 64
LABELS = {"none": "none (post-LN)", "norm_first": "norm_first (pre-LN)",
          "small_weights": "weights of std 0.02", "centered": "centered, γ = −1",
          "centered_0.5": "centered, γ = −0.5",
          "contranorm": "contranorm, s = 1", "contranorm_0.1": "contranorm, s = 0.1"}  # fmt: skip
COLOURS = ("#0072B2", "#E69F00", "#009E73")  # of learning rates
HEADER = ("method", "depth", "rate", "seed", "loss", "cosine", "effective_rank", "accuracy")


class Network(nn.Module):
    """An encoder of image patches with a linear classifier on the mean of its tokens."""

    def __init__(self, depth: int, norm_first: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            CHANNELS, 4, 2 * CHANNELS, batch_first=True, norm_first=norm_first
        )
        last = nn.LayerNorm(CHANNELS) if norm_first else None
        self.embed = nn.Linear(4, CHANNELS)
        self.positions = nn.Parameter(0.02 * torch.randn(16, CHANNELS))
        self.encoder = nn.TransformerEncoder(layer, depth, last, enable_nested_tensor=False)
        self.head = nn.Linear(CHANNELS, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = images.unfold(1, 2, 2).unfold(2, 2, 2).flatten(3).flatten(1, 2)
        return self.head(self.encoder(self.embed(patches) + self.positions).mean(1))


def small_weights(depth: int) -> Network:
    """BERT's initial weights, which are a sixth of torch's."""
    network = Network(depth)
    for parameter in network.encoder.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return network


def applied(method: str, depth: int, **options: float) -> Network:
    return osm.apply(Network(depth), method, **options)


OF_LIBRARY = (
    *("rezero", "pairnorm", "contranorm", "centered", "neutreno", "value_residual"),
    *("attn_scale", "feat_scale", "shaped_attention", "gated_attention"),
)
METHODS: dict[str, Callable[[int], Network]] = {
    "none": Network,
    "norm_first": partial(Network, norm_first=True),
    "small_weights": small_weights,
    **{name: partial(applied, name) for name in OF_LIBRARY},
    "centered_0.5": partial(applied, "centered", gamma=-0.5),
    "contranorm_0.1": partial(applied, "contranorm", scale=0.1),
}


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Returns images in [0, 1], (1797, 8, 8), and their classes, in one random order."""
    images, classes = load_digits(return_X_y=True)
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
    return torch.tensor(images).float().view(-1, 8, 8)[order] / 16, torch.tensor(classes)[order]


def train(
    method: str, depth: int, rate: float, seed: int, steps: int
) -> tuple[float, float, float, float]:
    """Returns last loss, cosine and rank after the last layer, and test accuracy in percent."""
    torch.manual_seed(seed)
    network, (x, y) = METHODS[method](depth), digits()
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.05)
    warmup = steps // 10
    shape = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / (steps - warmup))
    )
    for _ in range(steps):
        batch = torch.randint(TRAIN, (BATCH,))
        loss = F.cross_entropy(network(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        shape.step()
    network.eval()
    with torch.no_grad():
        right = network(x[TRAIN:]).argmax(1) == y[TRAIN:]
    report = osm.diagnose(network, x[TRAIN : TRAIN + 64], layers="encoder.layers.*")
    last = (report[name][-1] for name in ("cosine", "effective_rank"))
    return round(loss.item(), 3), *map(_short, last), round(100 * right.float().mean().item(), 2)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def show(rows: Sequence[Sequence[str]]) -> None:
    """Prints mean and standard deviation of each method at each rate."""
    for method, rate in dict.fromkeys((row[0], row[2]) for row in rows):
        own = [row for row in rows if (row[0], row[2]) == (method, rate)]
        texts = []
        for place in range(5, 8):
            found = [float(row[place]) for row in own]
            spread = statistics.stdev(found) if len(found) > 1 else float("nan")
            texts.append(f"{HEADER[place]} {statistics.mean(found):.2f} ± {spread:.2f}")
        print(f"{method}, rate {rate}: {', '.join(texts)} (n = {len(own)})")


@matplotlib.rc_context(LINES)
def draw(rows: Sequence[Sequence[str]]) -> Figure:
    """Draws accuracy and cosine of every seed, a line for each method, the most accurate on top."""
    rates = [*dict.fromkeys(row[2] for row in rows)]
    first = [row for row in rows if row[2] == rates[0]]
    of = {
        m: statistics.mean(float(r[7]) for r in first if r[0] == m) for m in {r[0] for r in first}
    }
    order = sorted(of, key=of.__getitem__)
    figure = Figure((5.2, 0.2 * len(order) + 1.1), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, place, label in zip(axes, (7, 5), ("test accuracy, %", "mean cosine of two tokens")):
        for rate, colour in zip(rates, COLOURS):
            own = [
                (float(r[place]), order.index(r[0])) for r in rows if r[2] == rate and r[0] in of
            ]
            axis.plot(*zip(*own), "o", ms=4, alpha=0.7, color=colour, label=f"rate {rate}")
        axis.set_xlabel(label)
    axes[0].axvline(10, color="#666666", ls=":", lw=1)
    axes[0].set(xlim=(0, 100), yticks=range(len(order)))
    axes[0].set_yticklabels([LABELS.get(name, name) for name in order], fontsize=8)
    axes[1].set_xlim(0, 1.03)
    figure.suptitle(f"{rows[0][1]} layers; dotted: chance", fontsize=9)
    if len(rates) > 1:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center",
                      ncols=len(rates), frameon=False)  # fmt: skip
    return figure


def main() -> None:
    parser = panels.parser()
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    name = "deep_encoder" if options.depth == 24 else f"deep_encoder_{options.depth}"
    path = Path(panels.folder() / f"{name}.csv")
    rows = [tuple(row.values()) for row in read_csv(path)] if path.exists() else []
    for rate, method, seed in product(options.rates, options.methods, options.seeds):
        run = (method, str(options.depth), f"{rate:g}", str(seed))
        if run not in {row[:4] for row in rows}:
            found = train(method, options.depth, rate, seed, options.steps)
            rows.append((*run, *map(str, found)))
            print(*rows[-1], flush=True)
            panels.write(name, HEADER, rows)
    show(rows)
    print(*save(draw(rows), path.with_suffix("")), sep="\n")


if __name__ == "__main__":
    run_script(main)
