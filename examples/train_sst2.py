"""A BERT from scratch on SST-2 with transformers' Trainer, plain and with centered attention.

python examples/train_sst2.py                        # 3 seeds of each, 3 minutes per run on a core
python examples/train_sst2.py --seeds 0 --gammas -1  # another γ

For comparison, this is the repository's own training with the same sizes and schedule:

python train.py experiment=glue_sst2_small backbone.depth=6 'seeds=[0,1,2]' \
  trainer.iterations=600 trainer.warmup=60 aggregator=centered aggregator.gamma=-0.5

Needs `pip install '.[text]' accelerate` and GLUE's files in $DATA_ROOT/glue.
"""

from functools import cache
from pathlib import Path

import panels
import torch
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

import oversmoothing as osm
from oversmoothing.lab.launch.script import run_script

GLUE = Path(panels.ROOT) / "glue"


@cache
def tokenizer() -> BertTokenizerFast:
    return BertTokenizerFast(str(panels.existing(GLUE / "bert-base-uncased-vocab.txt")))


def padded(rows: list[dict]) -> dict:
    return DataCollatorWithPadding(tokenizer(), pad_to_multiple_of=8)(rows)


def sentences(part: str) -> list[dict]:
    path = panels.existing(GLUE / "SST-2" / f"{part}.tsv")
    with open(path, encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    tokens = tokenizer()([text for text, _ in rows], truncation=True, max_length=40)
    return [
        {"input_ids": ids, "labels": int(label)} for ids, (_, label) in zip(tokens.input_ids, rows)
    ]


def bert(gamma: float, layers: int) -> BertForSequenceClassification:
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512}
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=layers, **sizes))
    return osm.apply(model, "centered", gamma=gamma) if gamma else model


def train(gamma: float, seed: int, layers: int, steps: int, folder: Path) -> float:
    """Returns the accuracy on the development set, in percent."""
    recipe = TrainingArguments(
        output_dir=str(folder),
        seed=seed,
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=5e-4,
        warmup_steps=steps // 10,
        weight_decay=0.01,
        max_grad_norm=0,  # no clipping
        use_cpu=True,
        save_strategy="no",
        logging_steps=100,
        disable_tqdm=True,
        report_to="none",
    )
    torch.manual_seed(seed)
    model = bert(gamma, layers)
    trainer = Trainer(
        model=model, args=recipe, train_dataset=sentences("train"), data_collator=padded,
        compute_metrics=lambda found: {
            "accuracy": (found.predictions.argmax(1) == found.label_ids).mean() * 100
        },
    )  # fmt: skip
    trainer.train()
    trainer.save_model()
    return trainer.evaluate(sentences("dev"))["eval_accuracy"]


def main() -> None:
    parser = panels.parser()
    parser.add_argument("--gammas", type=float, nargs="+", default=[0, -0.5])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    held_out = padded([{"input_ids": row["input_ids"]} for row in sentences("dev")[:64]])
    rows, measured = [], []
    for gamma in options.gammas:
        for seed in options.seeds:
            run = f"sst2-{options.layers}-{options.steps}-{gamma:g}-{seed}"
            folder = Path("outputs/examples") / run
            done = folder / "accuracy.txt"
            if not done.exists():
                accuracy = train(gamma, seed, options.layers, options.steps, folder)
                done.write_text(f"{accuracy:.2f}", "utf-8")
            rows.append((gamma, seed, done.read_text("utf-8")))
            print(*rows[-1], flush=True)
            model = bert(gamma, options.layers)
            model.load_state_dict(load_file(folder / "model.safetensors"))
            report = osm.diagnose(model, **held_out, reference="random", seed=seed)
            measured += panels.by_layer(f"γ = {gamma:g}", seed, report)
    panels.write("train_sst2", ("gamma", "seed", "accuracy"), rows)
    panels.write_layers("train_sst2_layers", measured)


if __name__ == "__main__":
    run_script(main)
