"""Classification of sentences and of pairs: the tasks of GLUE."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from oversmoothing.checks import at_least, require
from oversmoothing.lab.backbones.bert.bert import BERT
from oversmoothing.lab.data.loading import train_batches
from oversmoothing.lab.data.text.text_set import TextSet
from oversmoothing.lab.tasks.base import (
    Job,
    Parts,
    Result,
    Task,
    require_backbone,
    require_data,
    require_trainer,
    weights_of,
)
from oversmoothing.lab.tasks.glue.evaluator import Evaluator
from oversmoothing.lab.tasks.glue.network import Network, Objective
from oversmoothing.lab.tasks.glue.tokens import Tokens, open_tokenizer
from oversmoothing.lab.training.adamw_linear import AdamWLinear
from oversmoothing.lab.training.loop import TrainingLoop


@dataclass(frozen=True)
class GLUE(Task):
    """Trains BERT or ALBERT and a linear classifier.

    Args:
        max_length: tokens of a text, CLS and SEP included.
        dropout: before the classifier.
        eval_batch: texts per batch in evaluation; it affects results if aggregators see padding.
    """

    toy: ClassVar[Any] = TextSet("toy", 2, (), {}, (), {"val": ()}, None, "")
    max_length: int = 128
    dropout: float = 0.1
    eval_batch: int = 8

    @classmethod
    def accept(cls, parts: Parts) -> None:
        require_data(parts.data, TextSet, "task glue reads sentences; choose data=glue")
        require_trainer(parts.trainer, AdamWLinear, "glue", "trainer=bert")

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> Network:
        """Builds the network; the seed draws all weights that are not pretrained.

        Raises:
            InputError: data, recipe or backbone are of another kind, an option is out of range, or
                backbone or aggregators refuse their options.
        """
        self.accept(parts)
        [seed] = seeds
        torch.manual_seed(seed)
        bert = parts.backbone(aggregators=parts.aggregators)
        require_backbone(bert, BERT, "choose backbone=bert_base or backbone=albert_base")
        length, most = self.max_length, bert.max_length
        require(
            "task",
            max_length=(length, 5 <= length <= most, f"5 to {most} tokens"),
            dropout=(self.dropout, 0 <= self.dropout < 1, "0 or more, below 1"),
            **at_least(1, eval_batch=self.eval_batch),
        )
        return Network(bert, parts.data.num_classes, self.dropout).to(device)

    def run(self, network: Network, job: Job) -> dict[int, Result]:
        """Trains and evaluates one network.

        Returns:
            ``val_score``, the mean of the task's metrics, and each, ``val_accuracy``, …, in
            percent; ``val_mismatched_…`` too on MNLI; ``layers_before`` and ``layers_after``
            training (token cosine and effective rank by layer), ``conditions``, and the origin of
            the ``weights``.
        """
        [seed], data = job.seeds, job.parts.data
        tokenizer = open_tokenizer(data.vocabulary, network.backbone)
        tokens = Tokens(data, tokenizer, self.max_length)
        evaluator = Evaluator(network, tokens, self.eval_batch, job.device, job.recorder)
        before = evaluator.layers()
        trainer = job.parts.trainer.over(len(data.train))
        how = {"seed": seed, "workers": trainer.workers, "collate": tokens.collate}
        loader = partial(train_batches, data, tokens.sample, **how)
        objective = Objective(data.num_classes)
        TrainingLoop(network, objective, loader, trainer, job.recorder, job.device).fit()
        job.recorder.save_weights(network.state_dict())
        results: Result = {"weights": weights_of(network.backbone)}
        for part in data.parts:
            results |= evaluator.part(part)
        results |= {"layers_before": before, "layers_after": evaluator.layers()}
        results["conditions"] = {part: evaluator.conditions(part) for part in data.parts}
        return {seed: results}
