"""Sentences as tokens, one by one and in batches."""

import os
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oversmoothing.backbones.bert.bert import BERT, imported
from oversmoothing.data.text.text_set import TextSet
from oversmoothing.errors import InputError

MULTIPLE = 8  # that batches are padded to
Example = dict[str, Any]


class Tokens:
    """Examples and batches of a data set's texts, for ``train_batches`` and to evaluate.

    Args:
        data: texts.
        tokenizer: of transformers.
        max_length: tokens of a text, CLS and SEP included; of a longer one the end is cut off, of
            two sentences that of the longer.
    """

    def __init__(self, data: TextSet, tokenizer: Any, max_length: int) -> None:
        self.data, self.tokenizer, self.max_length = data, tokenizer, max_length

    def sample(self, id: str) -> Example:
        """``tokens`` and ``types`` (N,), the ``label`` and the id as ``name``."""
        text = self.data.texts[id]
        found = self.tokenizer(
            text.first,
            text.second,
            truncation=True,
            max_length=self.max_length,
            return_token_type_ids=True,
        )
        label = torch.tensor(text.label)
        return {
            "tokens": torch.tensor(found["input_ids"]),
            "types": torch.tensor(found["token_type_ids"]),
            "label": label.long() if self.data.num_classes else label.float(),
            "name": id,
        }

    def collate(self, examples: list[Example]) -> Example:
        """Padded to the longest, rounded up to a multiple of 8.

        Returns:
            ``tokens``, ``types`` and ``mask`` (true for tokens) (B, N), ``label`` (B,), ``name``.
        """
        longest = max(len(example["tokens"]) for example in examples)
        N = -(-longest // MULTIPLE) * MULTIPLE
        pad = self.tokenizer.pad_token_id
        lengths = torch.tensor([len(example["tokens"]) for example in examples])
        return {
            "tokens": _padded([example["tokens"] for example in examples], N, pad),
            "types": _padded([example["types"] for example in examples], N, 0),
            "mask": torch.arange(N) < lengths[:, None],
            "label": torch.stack([example["label"] for example in examples]),
            "name": [example["name"] for example in examples],
        }


def _padded(rows: list[Tensor], N: int, value: int) -> Tensor:
    return torch.stack([F.pad(row, (0, N - len(row)), value=value) for row in rows])


def open_tokenizer(vocabulary: Path | None, backbone: BERT) -> Any:
    """A tokenizer that fits a backbone.

    Args:
        vocabulary: of lower-cased WordPiece; None: the hub's under the backbone's name, from its
            cache or downloaded, unless ``OVERSMOOTHING_OFFLINE=1``.
        backbone: whose embeddings the tokens need.

    Raises:
        InputError: no tokenizer, a vocabulary that is none, or more tokens than embeddings.
    """
    if vocabulary:
        tokenizer, source = _word_pieces(vocabulary), str(vocabulary)
    else:
        tokenizer, source = _published(backbone.name), backbone.name
    if len(tokenizer) > backbone.vocabulary:
        raise InputError(
            f"data.vocabulary: {source} has {len(tokenizer)} tokens, the backbone embeddings for "
            f"{backbone.vocabulary}; set data.vocabulary=null for the hub's tokenizer of "
            f"{backbone.name}, or, from scratch, backbone.vocabulary={len(tokenizer)}"
        )
    return tokenizer


def _word_pieces(path: Path) -> Any:
    words = path.read_text(encoding="utf-8").splitlines()
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    if absent := [token for token in special if token not in words]:
        raise InputError(
            f"{path}: no {absent[0]} in it; expected a WordPiece vocabulary, one token a line, as "
            "bert-base-uncased's vocab.txt"
        )
    return imported().BertTokenizerFast(str(path))


def _published(name: str) -> Any:
    offline = os.environ.get("OVERSMOOTHING_OFFLINE") == "1"
    tokenizers = imported().AutoTokenizer
    try:
        return tokenizers.from_pretrained(name, local_files_only=offline)
    except Exception as error:  # the hub, the HTTP library and the tokenizers have many kinds
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise InputError(
            f"{name}: the hub's tokenizer cannot be had ({reason}); set data.vocabulary to a "
            "WordPiece vocabulary in the data folder"
        ) from error
