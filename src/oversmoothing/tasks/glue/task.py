"""Classification of sentences and of pairs: the tasks of GLUE."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from oversmoothing.aggregators.base import Aggregator
from oversmoothing.backbones.bert.bert import BERT
from oversmoothing.data.loading import train_batches
from oversmoothing.data.text.text_set import TextSet
from oversmoothing.errors import InputError
from oversmoothing.store.recorder import Recorder
from oversmoothing.tasks.glue.evaluator import Evaluator
from oversmoothing.tasks.glue.network import Network
from oversmoothing.tasks.glue.objective import Objective
from oversmoothing.tasks.glue.tokens import Tokens, open_tokenizer
from oversmoothing.training.adamw_linear import AdamWLinear
from oversmoothing.training.loop import TrainingLoop
from oversmoothing.training.recipe import Recipe

ONE_SEED_AT_A_TIME = True


def run(
    data: TextSet,
    backbone: Callable[..., BERT],
    aggregators: list[Callable[..., Aggregator]],
    trainer: AdamWLinear,
    seeds: list[int],
    recorder: Recorder,
    device: torch.device,
    max_length: int = 128,
    dropout: float = 0.1,
    eval_batch: int = 8,
) -> dict[int, dict[str, Any]]:
    """Trains and evaluates one network.

    Args:
        data: texts and labels.
        backbone: builds BERT or ALBERT from aggregators.
        aggregators: factories.
        trainer: the recipe.
        seeds: one; it draws new layers, batches and dropout.
        recorder: takes logs, checkpoints, the trained weights.
        device: where to train.
        max_length: tokens of a text, CLS and SEP included.
        dropout: before the classifier.
        eval_batch: texts at a time; matters where padding takes part in what aggregators do.

    Returns:
        ``val_score``, the mean of the task's metrics, and each, ``val_accuracy``, …, in percent;
        ``val_mismatched_…`` too on MNLI; ``layers_before`` and ``layers_after`` training (token
        cosine and effective rank by layer), ``conditions``, and where the ``weights`` come from.
    """
    [seed] = seeds
    torch.manual_seed(seed)
    network = Network(backbone(aggregators=aggregators), data.num_classes, dropout).to(device)
    tokenizer = open_tokenizer(data.vocabulary, network.backbone)
    tokens = Tokens(data, tokenizer, max_length)
    evaluator = Evaluator(network, tokens, eval_batch, device, recorder)
    before = evaluator.layers()
    trainer = trainer.over(len(data.train))
    loader = partial(
        train_batches,
        data,
        tokens.sample,
        seed=seed,
        workers=trainer.workers,
        collate=tokens.collate,
    )
    TrainingLoop(network, Objective(data.num_classes), loader, trainer, recorder, device).fit()
    recorder.save_weights(network.state_dict())
    results: dict[str, Any] = {
        "weights": "pretrained" if network.backbone.pretrained else "from scratch"
    }
    for part in data.parts:
        results |= evaluator.part(part)
    results |= {"layers_before": before, "layers_after": evaluator.layers()}
    results["conditions"] = {part: evaluator.conditions(part) for part in data.parts}
    return {seed: results}


def probe(
    backbone: Callable[..., BERT],
    aggregators: list[Callable[..., Aggregator]],
    trainer: Recipe,
    max_length: int,
    dropout: float,
    eval_batch: int,
) -> None:
    """Builds the network.

    Raises:
        InputError: what backbone and aggregators object to, another kind of recipe, or an option
            out of its range.
    """
    if not isinstance(trainer, AdamWLinear):
        raise InputError(
            f"trainer: task glue trains with linear decay over epochs, not with "
            f"{type(trainer).__name__}; add trainer=glue"
        )
    bert = backbone(aggregators=aggregators)
    if not isinstance(bert, BERT):
        raise InputError(
            f"backbone: task glue reads sentences, which {type(bert).__name__} does not; choose "
            "backbone=bert_base or backbone=albert_base"
        )
    rules = {
        f"max_length: expected 5 to {bert.max_length} tokens, got {max_length}": 5
        <= max_length
        <= bert.max_length,
        f"dropout: expected 0 or more, below 1, got {dropout}": 0 <= dropout < 1,
        f"eval_batch: expected 1 or more, got {eval_batch}": eval_batch >= 1,
    }
    if broken := [f"task.{rule}" for rule, holds in rules.items() if not holds]:
        raise InputError("; ".join(broken))
