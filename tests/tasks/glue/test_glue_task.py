"""GLUE end to end with a tiny BERT: results, resuming, tokens, recipe, mistakes."""

import json
from pathlib import Path

import pytest
import torch
from processes import train_by_two
from run_log import log_text

from oversmoothing.aggregators.none import NoAggregator
from oversmoothing.errors import InputError, Problems
from oversmoothing.lab.backbones.bert import BERT
from oversmoothing.lab.data import glue
from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store.weights import weights_path
from oversmoothing.lab.tasks.glue import Objective, Tokens, open_tokenizer
from oversmoothing.lab.training.recipes import AdamWLinear

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


def weights(config) -> torch.Tensor:
    state = torch.load(weights_path(run_folder(config), 0), weights_only=True)
    return torch.cat([value.flatten() for value in state.values() if torch.is_tensor(value)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("glue")


@pytest.fixture(scope="module")
def plain(data_root: Path, folder: Path) -> dict:
    """Returns result and weights of an uninterrupted run."""
    config = compose_config(words(data_root, folder / "plain"))
    result = execute(config)
    return {"result": result["seeds"]["0"], "weights": weights(config), "name": result["name"]}


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


def test_two_processes_do_what_one_does(data_root: Path, folder: Path) -> None:
    """Without dropout, which each draws for itself; padding of their batches differs."""
    calm = ("backbone.dropout=0", "task.dropout=0", "trainer.eps=1e-3")
    alone, both = (words(data_root, folder / name, *calm) for name in ("alone", "two"))
    expected = execute(compose_config(alone))["seeds"]["0"]
    train_by_two(*both)
    one, two = compose_config(alone), compose_config(both)
    torch.testing.assert_close(weights(two), weights(one), atol=2e-5, rtol=1e-3)
    found = json.loads((run_folder(two) / "result.json").read_text())["seeds"]["0"]
    assert found["val_score"] == expected["val_score"]


def test_bf16_stays_near_fp32(plain: dict, data_root: Path, folder: Path) -> None:
    config = compose_config(words(data_root, folder / "bf16", "trainer.precision=bf16"))
    execute(config)
    found = weights(config)
    assert not torch.equal(found, plain["weights"])
    torch.testing.assert_close(found, plain["weights"], atol=2e-2, rtol=0)


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


def test_the_losses_of_parts_add_up_to_that_of_the_batch() -> None:
    out, labels = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])

    def loss(rows: slice) -> torch.Tensor:
        part = {"tokens": out[rows], "mask": None, "types": None, "label": labels[rows]}
        return Objective(3).losses(lambda x, *_: x, part | {"batch_size": 6}, 0)["cls"]

    whole = torch.nn.functional.cross_entropy(out, labels)
    torch.testing.assert_close(loss(slice(0, 4)) + loss(slice(4, 6)), whole)


def test_the_rate_rises_and_falls_linearly_to_0() -> None:
    trainer = AdamWLinear(iterations=10, epochs=None, warmup=2)
    factors = [trainer.factor(step) for step in range(10)]
    assert factors == pytest.approx([0, 0.5, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert AdamWLinear(epochs=5.0, batch_size=32).over(2490).iterations == round(5 * 2490 / 32)
    with pytest.raises(InputError, match=r"trainer\.warmup: expected below"):
        AdamWLinear(epochs=1.0, warmup=50).over(100)
    with pytest.warns(UserWarning, match="trainer.iterations=7 has no effect"):
        assert AdamWLinear(iterations=7, epochs=1.0).over(320).iterations == 10


def test_only_matrices_decay() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    decayed, free = AdamWLinear(weight_decay=0.1).optimizer(network).param_groups
    assert decayed["weight_decay"] == 0.1 and [p.dim() for p in decayed["params"]] == [2]
    assert free["weight_decay"] == 0.0 and len(free["params"]) == 3


@pytest.mark.parametrize(
    "override, said",
    [
        (
            "trainer=toco_smoke",
            r"trainer: task glue cannot train with AdamWPoly; choose trainer=bert",
        ),
        ("task.max_length=4", r"task\.max_length: expected 5 to 512 tokens, got 4"),
        ("task.eval_batch=0", r"task\.eval_batch: expected 1 or more"),
        ("data.task=sst", r"data\.task: expected one of cola, .*'sst'"),
        ("trainer.warmup=6", r"trainer\.warmup: expected below trainer\.iterations=6, got 6"),
        ("trainer.epochs=0", r"trainer\.epochs: expected above 0, or null"),
        ("backbone.position=after", r"backbone\.position: expected input, context"),
        ("data.folder=none", r"none.WNLI: no such folder, and nyu-mll/glue cannot be loaded"),
        (
            "data.vocabulary=v.txt",
            r"data\.vocabulary: no file .*glue.v\.txt; expected one token",
        ),
    ],
)
def test_mistakes_are_found_before_any_work(
    data_root: Path, tmp_path: Path, override: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    changed = [word for word in TINY if not word.startswith("trainer.")]
    base = changed if override == "trainer=toco_smoke" else TINY
    with pytest.raises(Problems, match=said):
        configs([*base, f"paths.data={data_root}", f"paths.outputs={tmp_path}", override])


def test_more_tokens_than_embeddings_are_refused(tokens: Tokens) -> None:
    backbone = BERT([NoAggregator], weights="none", depth=1, dim=8, heads=1, ffn=8, vocabulary=100)
    with pytest.raises(InputError, match=r"30522 tokens, but .* embeddings for 100; set"):
        open_tokenizer(tokens.data.vocabulary, backbone)


def test_a_vocabulary_without_special_tokens_is_none(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\n")
    with pytest.raises(InputError, match=r"vocab\.txt: \[PAD\] is missing; expected a WordPiece"):
        open_tokenizer(path, None)
