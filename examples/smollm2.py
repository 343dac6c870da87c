"""SmolLM2-135M: context length, and centering put into trained weights.

python examples/smollm2.py lengths     # contexts of 32 to 2,048 tokens; 6 minutes on one core
python examples/smollm2.py gamma       # perplexity with γ in one block or in all; 9 minutes

`real_models.py` says how to install the weights, and writes attention sinks by block.

lengths: windows of the same text that start at the same tokens, measured after the last block, with
trained and with new random weights. *Mind the Gap* (Nait Saada, Naderi, Tanner, ICML 2025) predicts
that the stable rank of random attention layers falls as the context grows. The first token has
nearly all of the energy, so the ranks without it are measured as well.

gamma: centered self-attention, M V + γ v̄, where v̄ is the mean over the tokens that each token sees;
the weights stay as they are. Perplexity is that of windows of 256 tokens; the first has no loss.
"""

from collections.abc import Sequence

import panels
import real_models
import torch
from torch import Tensor

import oversmoothing as osm
from oversmoothing.lab.launch.script import run_script

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
STARTS = (0, 4096, 8192, 12288)
IN_ALL = (-1, -0.5, -0.2, -0.1, -0.05, 0.05, 0.1, 0.2, 0.5)  # γ
IN_ONE = (-1, -0.2, 0.2)
WINDOWS, WINDOW = 8, 256


def effective_rank_rest(x: Tensor) -> Tensor:
    """The effective rank without the first token."""
    return osm.metrics.effective_rank(x[:, 1:])


def stable_rank_rest(x: Tensor) -> Tensor:
    """The stable rank without the first token."""
    return osm.metrics.stable_rank(x[:, 1:])


def mean_share_rest(x: Tensor) -> Tensor:
    """The share of the mean token without the first token."""
    return osm.metrics.mean_share(x[:, 1:])


METRICS = ("cosine", "effective_rank", effective_rank_rest, "stable_rank", stable_rank_rest,
           "mean_share", mean_share_rest)  # fmt: skip
NAMES = tuple(metric if isinstance(metric, str) else metric.__name__ for metric in METRICS)


def lengths(options: Sequence[int], starts: Sequence[int] = STARTS) -> None:
    model, tokenizer = real_models.smollm2()
    text = real_models.news(tokenizer)
    last = [f"model.layers.{model.config.num_hidden_layers - 1}", "model.layers.15"]
    rows = []
    for length in options:
        for start in starts:
            window = text[None, start : start + length]
            report = osm.diagnose(
                model, input_ids=window, layers=last, metrics=METRICS, reference="random"
            )
            for weights, found in (("trained", report), ("random", report.reference)):
                for i, layer in enumerate(found.layers):
                    values = (f"{found[name][i]:.6g}" for name in NAMES)
                    rows.append((weights, int(layer.split(".")[-1]), length, start, *values))
            print(*rows[-4], flush=True)
    panels.write("smollm2_lengths", ("weights", "block", "tokens", "start", *NAMES), rows)
    draw_lengths(rows)


def draw_lengths(rows: Sequence[tuple]) -> None:
    options, end = sorted({row[2] for row in rows}), max(row[1] for row in rows)
    curves: dict[str, dict] = {}
    for i, name in enumerate(NAMES):
        if name == "mean_share":
            continue
        curves[name.replace("_rest", ": without the first token").replace("_", " ")] = {
            label: (options, [_mean(rows, weights, end, length, 4 + i) for length in options])
            for weights, label in (("trained", "SmolLM2"), ("random", "SmolLM2, random"))
        }
    panels.draw(
        "smollm2_lengths", curves, "tokens", log_x=True, dashed=["SmolLM2, random"], columns=3
    )


def _mean(rows: Sequence[tuple], weights: str, block: int, length: int, column: int) -> float:
    found = [float(r[column]) for r in rows if r[:3] == (weights, block, length)]
    return sum(found) / len(found)


@torch.no_grad()
def losses(model: torch.nn.Module, windows: Tensor) -> list[float]:
    """Returns the mean negative log-likelihood of every window, in nats per token."""
    scores = model(windows).logits[:, :-1].transpose(1, 2)
    nats = torch.nn.functional.cross_entropy(scores, windows[:, 1:], reduction="none")
    return nats.mean(dim=1).tolist()


def gamma(in_all: Sequence[float] = IN_ALL, in_one: Sequence[float] = IN_ONE) -> None:
    model, tokenizer = real_models.smollm2()
    windows = real_models.news(tokenizer)[: WINDOWS * WINDOW].view(WINDOWS, WINDOW)
    number = model.config.num_hidden_layers
    tried = [(g, "all") for g in in_all] + [(g, b) for g in in_one for b in range(number)]
    rows = [(0, "none", i, f"{nats:.6g}") for i, nats in enumerate(losses(model, windows))]
    for γ, block in tried:
        osm.apply(model, "centered", gamma=γ, blocks="all" if block == "all" else [block])
        found = losses(model, windows)
        osm.remove(model)
        rows += [(γ, block, i, f"{nats:.6g}") for i, nats in enumerate(found)]
        print(γ, block, f"{perplexity(rows, γ, block):.2f}", flush=True)
    lines = [(*row, f"{perplexity(rows, *row[:2]):.6g}") for row in rows]
    panels.write("smollm2_gamma", ("gamma", "block", "window", "nats", "perplexity"), lines)
    draw_gamma(rows)


def draw_gamma(rows: Sequence[tuple]) -> None:
    plain = perplexity(rows, 0, "none")
    blocks = sorted({block for _, block, _, _ in rows if isinstance(block, int)})
    in_one = {
        f"γ = {γ:g}".replace("-", "−"): ([b + 1 for b in blocks],
                                         [perplexity(rows, γ, b) for b in blocks])
        for γ in sorted({γ for γ, block, _, _ in rows if isinstance(block, int) and γ < 0})
    }  # fmt: skip
    in_one["no method"] = ([1, len(blocks)], [plain, plain])
    in_all = sorted({γ for γ, *_ in rows})
    curve = [perplexity(rows, γ, "all") if γ else plain for γ in in_all]
    one, every = "perplexity, γ in one block", "perplexity, γ in every block"
    panels.draw(
        "smollm2_gamma",
        {one: in_one, every: {"_centered": (in_all, curve)}},
        ["the block that has γ", "γ"],
        log_y=[one, every],
        dashed=["no method"],
    )


def perplexity(rows: Sequence[tuple], γ: float, block: int | str) -> float:
    """Returns the exponential of the mean over windows."""
    found = [float(nats) for g, b, _, nats in rows if (g, b) == (γ, block)]
    return float(torch.tensor(found).mean().exp())


def main() -> None:
    parser = panels.parser()
    parser.add_argument("study", choices=("lengths", "gamma"))
    parser.add_argument("--tokens", type=int, nargs="+", default=LENGTHS, help="of lengths")
    options = parser.parse_args()
    lengths(options.tokens) if options.study == "lengths" else gamma()


if __name__ == "__main__":
    run_script(main)
