"""GLUE end to end with a tiny BERT: results, resuming, tokens, recipe, mistakes."""

import json
import re
from pathlib import Path

import pytest
from run_log import log_text

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.data import glue
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.tasks.glue import Tokens, open_tokenizer

pytest.importorskip("transformers")

TINY = [
    "experiment=glue_sst2_small",
    *("data.task=wnli", "task.max_length=16", "task.eval_batch=8"),
    *("backbone.dim=16", "backbone.heads=2", "backbone.ffn=16"),
    *("trainer.iterations=6", "trainer.warmup=2", "trainer.batch_size=4", "trainer.workers=0"),
    *("trainer.log_every=2", "logger=none", "threads=1", "device=cpu"),
]


def words(root: Path, outputs: Path, *overrides: str) -> list[str]:
    return [*TINY, f"paths.data={root}", f"paths.outputs={outputs}", *overrides]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("glue")


@pytest.fixture(scope="module")
def plain(data_root: Path, folder: Path) -> dict:
    config = compose_config(words(data_root, folder / "plain"))
    result = execute(config)
    return {"result": result["seeds"]["0"], "name": result["name"]}


def test_a_run_says_what_it_measured_and_how(plain: dict) -> None:
    result = plain["result"]
    assert result["val_score"] == result["val_accuracy"] and 0 <= result["val_score"] <= 100
    assert result["weights"] == "from scratch"
    assert plain["name"].startswith("glue-wnli-contranorm-")
    for when in ("before", "after"):
        layers = result[f"layers_{when}"]
        assert len(layers["cosine"]) == len(layers["effective_rank"]) == 2
        assert all(1 <= rank <= 16 for rank in layers["effective_rank"])
    assert result["layers_before"] != result["layers_after"]
    said = "71 texts of wnli val, at most 16 tokens, 8 at a time, padding kept from aggregators"
    assert result["conditions"]["val"].startswith(said)


@pytest.mark.parametrize("task, keys", [("stsb", "pearson spearman"), ("mrpc", "accuracy f1")])
def test_scores_and_pairs(data_root: Path, folder: Path, task: str, keys: str) -> None:
    overrides = [f"data.task={task}", "trainer.iterations=2", "trainer.warmup=0"]
    overrides += ["task.eval_batch=100", "backbone.depth=1"]
    config = compose_config(words(data_root, folder / task, *overrides, "aggregator=centered"))
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


@pytest.mark.parametrize(
    "wrong",
    [
        "task.max_length=4",
        "task.eval_batch=0",
        "data.task=sst",
        "trainer.warmup=6",
        "trainer.epochs=0",
        "backbone.position=after",
        "data.vocabulary=v.txt",
        "backbone.vocabulary=100",  # fewer than the tokenizer's tokens
    ],
)
def test_mistakes_are_named(
    data_root: Path, tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    with pytest.raises((Problems, InputError), match=re.escape(wrong.split("=")[0])):
        [config] = configs([*words(data_root, tmp_path), wrong])
        execute(config)
