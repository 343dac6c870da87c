"""A small GPT-2 from scratch on GLUE's English, plain and with causal centered attention.

python examples/causal_lm.py                      # 3 seeds of each, 2 minutes per run on one core
python examples/causal_lm.py --layers 12 --seeds 0

The text consists of the training sentences of CoLA, MRPC and RTE (train.tsv in $DATA_ROOT/glue);
perplexity is measured on their dev.tsv. The tokens are the 4,095 most frequent ones of BERT; all
others share one token.

Needs `pip install '.[text]'`.
"""

from pathlib import Path

import panels
import torch
from torch import Tensor
from torch.optim.lr_scheduler import OneCycleLR
from transformers import BertTokenizerFast, GPT2Config, GPT2LMHeadModel

import oversmoothing as osm
from oversmoothing.lab.data import glue
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.weights import save_tensors

VOCABULARY, LENGTH, BATCH = 4096, 64, 16
VOCABULARY_FILE = Path(panels.ROOT) / "glue/bert-base-uncased-vocab.txt"


def text() -> dict[str, list[str]]:
    """Returns the sentences of the training and of the development files."""
    found: dict[str, list[str]] = {"train": [], "val": []}
    for task in ("cola", "mrpc", "rte"):
        data = glue.load(panels.ROOT, task=task)
        for part, ids in (("train", data.train), ("val", data.val)):
            for text in (data.texts[id] for id in ids):
                found[part] += [text.first, *([text.second] if text.second else [])]
    return found


def streams() -> dict[str, Tensor]:
    """Returns both texts as windows of equal length, (windows, LENGTH)."""
    words = BertTokenizerFast(str(panels.existing(VOCABULARY_FILE)))
    found = {}
    for part, sentences in text().items():
        ids = words(sentences, add_special_tokens=False).input_ids
        found[part] = torch.tensor([t for one in ids for t in (*one, words.sep_token_id)])
    frequent = found["train"].bincount(minlength=len(words)).argsort(descending=True, stable=True)
    number = torch.zeros(len(words), dtype=torch.long)  # 0: all rare tokens
    number[frequent[: VOCABULARY - 1]] = torch.arange(1, VOCABULARY)
    cut = {part: len(stream) // LENGTH * LENGTH for part, stream in found.items()}
    return {part: number[found[part][:n]].view(-1, LENGTH) for part, n in cut.items()}


def gpt2(gamma: float, layers: int, seed: int) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    sizes = {"n_embd": 128, "n_head": 2, "n_positions": LENGTH, "vocab_size": VOCABULARY}
    ends = {"bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, **sizes, **ends))
    return osm.apply(model, "centered", gamma=gamma) if gamma else model


def train(model: GPT2LMHeadModel, tokens: Tensor, steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = OneCycleLR(optimizer, max_lr=1e-3, total_steps=steps, pct_start=0.1)
    model.train()
    for step in range(steps):
        batch = tokens[torch.randint(len(tokens), (BATCH,))]
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)


@torch.no_grad()
def perplexity(model: GPT2LMHeadModel, tokens: Tensor) -> float:
    model.eval()
    batches = tokens.split(64)
    losses = [model(batch, labels=batch).loss * len(batch) for batch in batches]
    return (sum(losses) / len(tokens)).exp().item()


def main() -> None:
    parser = panels.parser()
    parser.add_argument("--gammas", type=float, nargs="+", default=[0, -0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    tokens, held_out = streams().values()
    print(f"{tokens.numel()} tokens for training, {held_out.numel()} held out")
    rows, measured = [], []
    for gamma in options.gammas:
        for seed in options.seeds:
            model = gpt2(gamma, options.layers, seed)
            run = f"gpt2-{options.layers}-{options.steps}-{gamma:g}-{seed}.pt"
            path = Path("outputs/examples") / run
            before = perplexity(model, held_out)
            if path.exists():
                model.load_state_dict(torch.load(path))
            else:
                train(model, tokens, options.steps)
                save_tensors(path, model.state_dict())  # whole or not at all
            rows.append((gamma, seed, round(before, 1), round(perplexity(model, held_out), 1)))
            print(*rows[-1], flush=True)
            report = osm.diagnose(model, held_out[:64], reference="random", seed=seed)
            measured += panels.by_layer(f"γ = {gamma:g}", seed, report)
    name = f"causal_lm_{options.layers}"
    panels.write(name, ("gamma", "seed", "perplexity_before", "perplexity_after"), rows)
    panels.write_layers(f"{name}_layers", measured)


if __name__ == "__main__":
    run_script(main)
