"""Tokenizes sentences and collates them into batches."""

from pathlib import Path
from typing import Any

import torch

from oversmoothing.errors import InputError, described
from oversmoothing.lab.backbones.bert.bert import BERT, imported
from oversmoothing.lab.data.text.text_set import TextSet
from oversmoothing.lab.store.files import offline

MULTIPLE = 8  # the padded length of a batch is a multiple of this
Example = dict[str, Any]


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
