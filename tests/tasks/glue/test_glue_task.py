"""GLUE with a tiny BERT: scores, pairs of sentences, tokens."""

import json
from pathlib import Path

import pytest
from run_log import log_text
from small_runs import words

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.data import glue
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.tasks.glue import Tokens, open_tokenizer

pytest.importorskip("transformers")


@pytest.mark.parametrize("task, keys", [("stsb", "pearson spearman"), ("mrpc", "accuracy f1")])
def test_scores_and_pairs(data_root: Path, tmp_path: Path, task: str, keys: str) -> None:
    own = [f"data.task={task}", f"paths.data={data_root}", "task.eval_batch=100", "device=cpu"]
    config = compose_config(words("glue", tmp_path / "out", *own, "aggregator=centered"))
    result = execute(config)["seeds"]["0"]
    found = [result[f"val_{key}"] for key in keys.split()]
    assert result["val_score"] == pytest.approx(sum(found) / 2)
    log = log_text(run_folder(config)).splitlines()
    assert ("loss_mse" in json.loads(log[-1])) == (task == "stsb")


@pytest.fixture(scope="module")
def tokens(data_root: Path) -> Tokens:
    data = glue.load(str(data_root), task="rte")
    small = {"weights": "none", "depth": 1, "dim": 8, "heads": 1, "ffn": 8}
    backbone = BERT([NoAggregator], **small)
    return Tokens(data, open_tokenizer(data.vocabulary, backbone), max_length=20)


def test_tokens_are_berts(tokens: Tokens) -> None:
    first = tokens.sample(tokens.data.train[0])
    said = tokens.tokenizer.convert_ids_to_tokens(first["input_ids"])
    assert said[:4] == ["[CLS]", "no", "weapons", "of"]
    assert said[10:13] == ["[SEP]", "weapons", "of"] and said[-1] == "[SEP]"
    assert first["token_type_ids"] == [0] * 11 + [1] * (len(said) - 11)
    assert all(len(tokens.sample(id)["input_ids"]) <= 20 for id in tokens.data.train[:50])


def test_batches_are_padded_to_a_multiple_of_8(tokens: Tokens) -> None:
    examples = [tokens.sample(id) for id in tokens.data.train[:4]]
    lengths = [len(example["input_ids"]) for example in examples]
    batch = tokens.collate(examples)
    assert batch["tokens"].shape == batch["types"].shape == (4, 24)
    assert batch["mask"].sum(dim=1).tolist() == lengths
    assert not batch["tokens"][~batch["mask"]].any()
    assert batch["name"] == list(tokens.data.train[:4])
