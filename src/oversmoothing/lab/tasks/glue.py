"""GLUE: BERT or ALBERT and a linear classifier, with GLUE's metrics in percent."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oversmoothing.checks import at_least, require
from oversmoothing.errors import InputError, described
from oversmoothing.lab.backbones.bert import BERT, imported
from oversmoothing.lab.data.glue import TextSet
from oversmoothing.lab.data.loading import train_batches
from oversmoothing.lab.store.files import offline
from oversmoothing.lab.store.run import Recorder
from oversmoothing.lab.tasks import layers
from oversmoothing.lab.tasks.base import (
    Job,
    Parts,
    Result,
    Task,
    require_kind,
    weights_of,
)
from oversmoothing.lab.training.loop import BaseObjective, Batch, TrainingLoop, to_device
from oversmoothing.lab.training.recipes import AdamWLinear

Example = dict[str, Any]


@dataclass(frozen=True)
class GLUE(Task):
    """Trains BERT or ALBERT and a linear classifier.

    Args:
        max_length: tokens of a text, CLS and SEP included.
        dropout: before the classifier.
        eval_batch: texts per batch in evaluation; it affects results if aggregators see padding.
    """

    diagnoses: ClassVar[bool] = True
    toy: ClassVar[Any] = TextSet("toy", 2, (), {}, (), {"val": ()}, None, "")
    kinds: ClassVar[dict[str, tuple[Any, str]]] = {
        "data": (TextSet, "task glue reads sentences; choose data=glue"),
        "trainer": (AdamWLinear, "choose trainer=bert"),
    }
    max_length: int = 128
    dropout: float = 0.1
    eval_batch: int = 8

    def network(self, parts: Parts, seeds: list[int], device: torch.device) -> "Network":
        """Builds the network; the seed draws all weights that are not pretrained."""
        self.accept(parts)
        [seed] = seeds
        torch.manual_seed(seed)
        bert = parts.backbone(aggregators=parts.aggregators)
        require_kind("backbone", bert, BERT, "choose backbone=bert_base or backbone=albert_base")
        length, most = self.max_length, bert.max_length
        require(
            "task",
            max_length=(length, 5 <= length <= most, f"5 to {most} tokens"),
            dropout=(self.dropout, 0 <= self.dropout < 1, "0 or more, below 1"),
            **at_least(1, eval_batch=self.eval_batch),
        )
        return Network(bert, parts.data.num_classes, self.dropout).to(device)

    def chance(self, parts: Parts, seed: int) -> dict[str, float]:
        data = parts.data
        if "accuracy" not in data.metrics:
            return {}
        counts = Counter(data.texts[id].label for id in data.val)
        return {"val_accuracy": 100 * max(counts.values()) / counts.total()}

    def run(self, network: "Network", job: Job) -> dict[int, Result]:
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
        own = (job.recorder, job.device)
        TrainingLoop(network, objective, loader, trainer, *own, layers=evaluator.layers).fit()
        job.recorder.save_weights(network.state_dict())
        results: Result = {"weights": weights_of(network.backbone)}
        for part in data.parts:
            results |= evaluator.part(part)
        results |= {"layers_before": before, "layers_after": evaluator.layers()}
        results["conditions"] = {part: evaluator.conditions(part) for part in data.parts}
        return {seed: results}


class Network(nn.Module):
    """Backbone, dropout and a linear layer on the pooled CLS token.

    Args:
        backbone: BERT or ALBERT.
        num_classes: K; 0: one output, a score.
        dropout: rate before the linear layer.
    """

    def __init__(self, backbone: BERT, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.backbone, self.dropout = backbone, nn.Dropout(dropout)
        self.classifier = nn.Linear(backbone.dim, num_classes or 1)
        nn.init.normal_(self.classifier.weight, std=INITIAL)
        nn.init.zeros_(self.classifier.bias)

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> Tensor:
        """Returns logits or scores. Shapes: each (B, N) -> (B, K or 1)."""
        return self.classifier(self.dropout(self.backbone(tokens, mask, types)))


@dataclass(frozen=True)
class Objective(BaseObjective):
    """Cross-entropy for classes, mean squared error for scores.

    Args:
        num_classes: K; 0: scores.
    """

    num_classes: int

    def phase(self, batch: Batch, step: int) -> None:
        """Returns None, since batches differ in length."""

    def losses(self, model: nn.Module, part: Batch, step: int) -> dict[str, Tensor]:
        """Returns this part's share of the mean loss over the batch."""
        share = len(part["label"]) / part["batch_size"]
        out = model(part["tokens"], part["mask"], part["types"]).float()
        if self.num_classes:
            return {"cls": share * F.cross_entropy(out, part["label"])}
        return {"mse": share * F.mse_loss(out[:, 0], part["label"])}


@dataclass(eq=False)
class Evaluator:
    """Evaluates a network. Every process does the whole evaluation, which takes seconds.

    Args:
        network: network to evaluate.
        tokens: tokenized data.
        batch: texts per batch.
        device: device of the network.
        recorder: shows progress.
    """

    network: "Network"
    tokens: "Tokens"
    batch: int
    device: torch.device
    recorder: Recorder

    @property
    def data(self) -> TextSet:
        return self.tokens.data

    def part(self, part: str) -> dict[str, float]:
        """Returns ``<part>_score`` and ``<part>_<metric>`` for each metric, in percent."""
        ids = self.data.parts[part]
        truth = torch.tensor([self.data.texts[id].label for id in ids])
        found = measure(self.data.metrics, self.predictions(ids), truth)
        return {f"{part}_{name}": value for name, value in found.items()}

    @torch.no_grad()
    def predictions(self, ids: Sequence[str]) -> Tensor:
        """Returns classes or scores, on the CPU. Shapes: -> (len(ids),)."""
        self.network.eval()
        found = []
        with self.recorder.progress(len(ids), "evaluation") as bar:
            for batch in self._batches(ids, self.batch):
                out = self.network(batch["tokens"], batch["mask"], batch["types"])
                classes = self.data.num_classes
                found.append((out.float().argmax(dim=1) if classes else out.float()[:, 0]).cpu())
                bar.update(len(batch["name"]))
        return torch.cat(found)

    @torch.no_grad()
    def layers(self) -> dict[str, list[float]]:
        """Measures mean pairwise cosine and effective rank of the tokens after every layer.

        Each sentence is measured alone, without padding; CLS and SEP count as tokens. The results
        are means over validation sentences.

        Returns:
            ``cosine``, ``effective_rank`` and ``token_variance``, one value per layer.
        """
        self.network.eval()
        return layers.measured(map(self._tokens, self._batches(self.data.val[:SENTENCES], 1)))

    def _tokens(self, one: dict[str, Any]) -> list[Tensor]:
        """Returns the tokens of a sentence after every layer, without padding."""
        real = (one[key][:, one["mask"][0]] for key in ("tokens", "mask", "types"))
        return self.network.backbone.layers(*real)

    def conditions(self, part: str) -> str:
        """Describes how the metrics of a part were measured."""
        padding = self.network.backbone.padding.masked
        return (
            f"{len(self.data.parts[part])} texts of {self.data.name} {part}, at most "
            f"{self.tokens.max_length} tokens, {self.batch} at a time, padding "
            f"{'kept from' if padding else 'seen by'} aggregators, last weights"
        )

    def _batches(self, ids: Sequence[str], size: int) -> Iterator[dict[str, Any]]:
        for start in range(0, len(ids), size):
            samples = [self.tokens.sample(id) for id in ids[start : start + size]]
            yield to_device(self.tokens.collate(samples), self.device)


class Tokens:
    """Tokenizes the texts of a data set, for ``train_batches`` and for evaluation.

    Args:
        data: texts.
        tokenizer: tokenizer of transformers.
        max_length: largest number of tokens of a text, CLS and SEP included. Longer texts are
            truncated at the end; of two sentences, the longer one is truncated.
    """

    def __init__(self, data: TextSet, tokenizer: Any, max_length: int) -> None:
        self.data, self.tokenizer, self.max_length = data, tokenizer, max_length
        self.pad = imported().DataCollatorWithPadding(tokenizer, pad_to_multiple_of=MULTIPLE)

    def sample(self, id: str) -> Example:
        """Returns ``input_ids`` and ``token_type_ids`` (N), ``label`` () and the id as ``name``."""
        text = self.data.texts[id]
        options = {"truncation": True, "max_length": self.max_length}
        found = self.tokenizer(text.first, text.second, return_token_type_ids=True, **options)
        label = torch.tensor(text.label)
        label = label.long() if self.data.num_classes else label.float()
        return {**found, "label": label, "name": id}

    def collate(self, examples: list[Example]) -> Example:
        """Pads examples to the longest one, rounded up to a multiple of 8.

        Returns:
            ``tokens``, ``types`` and ``mask`` (true for tokens) (B, N), ``label`` (B,), ``name``.
        """
        keys = ("input_ids", "token_type_ids", "attention_mask")
        padded = self.pad([{key: example[key] for key in keys} for example in examples])
        return {
            "tokens": padded["input_ids"],
            "types": padded["token_type_ids"],
            "mask": padded["attention_mask"].bool(),
            "label": torch.stack([example["label"] for example in examples]),
            "name": [example["name"] for example in examples],
        }


def open_tokenizer(vocabulary: Path | None, backbone: BERT) -> Any:
    """Opens the tokenizer of a backbone.

    Args:
        vocabulary: file with a lower-case WordPiece vocabulary; None: the hub's tokenizer of the
            backbone's name, from the cache or, unless ``OVERSMOOTHING_OFFLINE=1``, downloaded.
        backbone: backbone that embeds the tokens.

    Raises:
        InputError: there is no tokenizer, the file is not a vocabulary, or there are more tokens
            than embeddings.
    """
    if vocabulary:
        tokenizer, source = _word_pieces(vocabulary), str(vocabulary)
    else:
        tokenizer, source = _published(backbone.name), backbone.name
    if len(tokenizer) > backbone.vocabulary:
        raise InputError(
            f"data.vocabulary: {source} has {len(tokenizer)} tokens, but the backbone has "
            f"embeddings for {backbone.vocabulary}; set data.vocabulary=null for the tokenizer of "
            f"{backbone.name}, or, from scratch, backbone.vocabulary={len(tokenizer)}"
        )
    return tokenizer


def _word_pieces(path: Path) -> Any:
    try:
        words = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read as text ({error}); give data.vocabulary a WordPiece vocabulary"
        ) from error
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    if absent := [token for token in special if token not in words]:
        raise InputError(
            f"{path}: {absent[0]} is missing; expected a WordPiece vocabulary with one token per "
            "line, as in the vocab.txt of bert-base-uncased"
        )
    return imported().BertTokenizerFast(str(path))


def _published(name: str) -> Any:
    tokenizers = imported().AutoTokenizer
    try:
        return tokenizers.from_pretrained(name, local_files_only=offline())
    except Exception as error:  # the hub, its HTTP library and tokenizers may raise any error
        reason = described(error)
        raise InputError(
            f"{name}: the hub's tokenizer cannot be loaded ({reason}); set data.vocabulary to a "
            "WordPiece vocabulary in the data folder"
        ) from error


def measure(names: Sequence[str], prediction: Tensor, truth: Tensor) -> dict[str, float]:
    """Computes metrics and their mean, ``score``, which GLUE reports for a task.

    A correlation is 0 if it is undefined because one of the two is constant.

    Args:
        names: keys of ``METRICS``.
        prediction: classes from 0, or scores.
        truth: classes or scores.

    Shapes: prediction (N,), truth (N,).
    """
    found = {name: METRICS[name](prediction.double(), truth.double()) for name in names}
    return {"score": sum(found.values()) / len(found), **found}


def accuracy(prediction: Tensor, truth: Tensor) -> float:
    """Percentage of equal classes."""
    return 100 * (prediction == truth).double().mean().item()


def f1(prediction: Tensor, truth: Tensor) -> float:
    """2 TP / (2 TP + FP + FN) of class 1; 0 if class 1 is neither predicted nor true."""
    both = ((prediction == 1) & (truth == 1)).sum().item()
    either = (prediction == 1).sum().item() + (truth == 1).sum().item()
    return 100 * 2 * both / either if either else 0.0


def matthews(prediction: Tensor, truth: Tensor) -> float:
    """Matthews correlation of two classes: Pearson correlation of zeros and ones."""
    return pearson((prediction == 1).double(), (truth == 1).double())


def pearson(prediction: Tensor, truth: Tensor) -> float:
    """Pearson correlation."""
    return _correlation("pearsonr", prediction, truth)


def spearman(prediction: Tensor, truth: Tensor) -> float:
    """Spearman correlation."""
    return _correlation("spearmanr", prediction, truth)


def _correlation(name: str, prediction: Tensor, truth: Tensor) -> float:
    from scipy import stats  # takes a second to import, and most tasks do not need it

    if (prediction == prediction[0]).all() or (truth == truth[0]).all():
        return 0.0
    return 100 * float(getattr(stats, name)(prediction, truth).statistic)


METRICS = {f.__name__: f for f in (accuracy, f1, matthews, pearson, spearman)}


INITIAL = 0.02  # standard deviation of new weights (BERT's)


MULTIPLE = 8  # the padded length of a batch is a multiple of this


SENTENCES = 64  # validation sentences for token similarity
