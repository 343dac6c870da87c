"""GLUE from files and from the hub: sizes, labels, quotes, and one line for each mistake."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from oversmoothing.errors import InputError
from oversmoothing.lab.data import glue
from oversmoothing.lab.data.glue import TASKS

SIZES = {  # training and development texts, as the GLUE paper has them
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "stsb": (5749, 1500),
    "rte": (2490, 277),
    "wnli": (635, 71),
}


@pytest.mark.parametrize("task", SIZES)
def test_sizes_of_the_real_tasks(data_root: Path, task: str) -> None:
    data = glue.load(str(data_root), task=task)
    assert (len(data.train), len(data.val)) == SIZES[task]
    pairs = {text.second is not None for text in data.texts.values()}
    assert pairs == {task not in ("cola", "sst2")}
    labels = {text.label for text in data.texts.values()}
    assert labels == {0, 1} if data.num_classes else max(labels) == 5.0


def test_sentences_and_labels_stand_where_they_should(data_root: Path) -> None:
    rte = glue.load(str(data_root), task="rte")
    first = rte.texts[rte.train[0]]
    assert first.second == "Weapons of Mass Destruction Found in Iraq."
    assert first.label == 1  # not_entailment
    cola = glue.load(str(data_root), task="cola")
    assert cola.texts["train:1"].first.startswith("Our friends won't buy this analysis")
    assert cola.texts["train:1"].label == 1
    mrpc = glue.load(str(data_root), task="mrpc")
    assert '" the witness "' in mrpc.texts[mrpc.train[0]].first


def write(folder: Path, task: str, header: str, **files: list[str]) -> str:
    base = folder / "glue" / TASKS[task].folder
    base.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (base / f"{name}.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return str(folder)


def load(root: str, task: str, **options: str) -> glue.TextSet:
    return glue.load(root, task=task, vocabulary=None, **options)


WNLI = "index\tsentence1\tsentence2\tlabel"
GOOD = ["0\ta \"quote\tit's\t1", "1\tb\u2028c\td\t0"]


def test_quotes_and_odd_spaces_are_characters(tmp_path: Path) -> None:
    data = load(write(tmp_path, "wnli", WNLI, train=GOOD, dev=GOOD), "wnli")
    one, two = (data.texts[id] for id in data.train)
    assert (one.first, one.second, one.label) == ('a "quote', "it's", 1)
    assert two.first == "b\u2028c"


def test_official_columns_of_tasks_that_are_not_here(tmp_path: Path) -> None:
    qqp = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    data = load(
        write(tmp_path, "qqp", qqp, train=["1\t2\t3\tq\tr\t1"], dev=["1\t2\t3\ts\tt\t0"]), "qqp"
    )
    assert [data.texts[id].label for id in (*data.train, *data.val)] == [1, 0]
    mnli = "index\tsentence1\tsentence2\tlabel1\tgold_label"
    lines = ["0\ta\tb\tneutral\tcontradiction"]
    parts = {"train": lines, "dev_matched": lines, "dev_mismatched": 2 * lines}
    data = load(write(tmp_path, "mnli", mnli, **parts), "mnli")
    assert {part: len(ids) for part, ids in data.parts.items()} == {"val": 1, "val_mismatched": 2}
    assert (data.num_classes, data.texts["train:2"].label) == (3, 2)


def test_the_checksum_knows_every_character(tmp_path: Path) -> None:
    root = write(tmp_path, "wnli", WNLI, train=GOOD, dev=GOOD)
    first = load(root, "wnli").checksum
    assert load(root, "wnli").checksum == first
    write(tmp_path, "wnli", WNLI, train=GOOD, dev=[GOOD[0], "1\tb\u2028c\td\t1"])
    assert load(root, "wnli").checksum != first


@pytest.mark.parametrize("line", ["2\tonly\tthree", "2\ta\tb\tyes"])
def test_a_broken_line_is_left_out_in_training_only(tmp_path: Path, line: str) -> None:
    root = write(tmp_path, "wnli", WNLI, train=[*GOOD, line], dev=GOOD)
    with pytest.warns(UserWarning, match=r"train\.tsv:4: .*skipped lines: 1"):
        assert len(load(root, "wnli").train) == 2
    write(tmp_path, "wnli", WNLI, train=GOOD, dev=[line])
    with pytest.raises(InputError, match=r"dev\.tsv:2"):
        load(root, "wnli")


@pytest.mark.parametrize(
    ("task", "header", "lines", "named"),
    [
        ("wnli", WNLI.replace("label", "lable"), GOOD, "train.tsv: no column 'label'"),
        ("stsb", "sentence1\tsentence2\tscore", ["a\tb\t6"], "train.tsv: no sentence"),
        ("rte", WNLI, [], "train.tsv: no sentence"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, task: str, header: str, lines: list[str], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        load(write(tmp_path, task, header, train=lines, dev=lines), task)


def test_missing_files_and_vocabularies_are_named(tmp_path: Path) -> None:
    (tmp_path / "glue/SST-2").mkdir(parents=True)
    with pytest.raises(InputError, match=r"SST-2.train\.tsv: .*data\.task"):
        load(str(tmp_path), "sst2")
    with pytest.raises(InputError, match=r"data\.vocabulary: no file"):
        glue.load(write(tmp_path, "wnli", WNLI, train=GOOD, dev=GOOD), task="wnli")


HUB = {  # columns of the sentences, in the order of the hub
    "mnli": ["premise", "hypothesis"],
    "mrpc": ["sentence1", "sentence2"],
    "rte": ["sentence1", "sentence2"],
    "stsb": ["sentence1", "sentence2"],
}


def on_the_hub(data: glue.TextSet, task: str) -> dict:
    """The splits of ``datasets`` that hold the texts of a data set."""
    datasets = pytest.importorskip("datasets")
    kinds = {"label": "int64" if data.num_classes else "float32", "idx": "int32"}

    def split(ids: tuple[str, ...]) -> object:
        texts = [data.texts[id] for id in ids]
        first, *second = HUB.get(task, ["sentence"])
        columns = {first: [text.first for text in texts]}
        columns |= {name: [text.second for text in texts] for name in second}
        columns |= {"label": [text.label for text in texts], "idx": list(range(len(ids)))}
        features = {name: datasets.Value(kinds.get(name, "string")) for name in columns}
        return datasets.Dataset.from_dict(columns, datasets.Features(features))

    parts = {"train": data.train, **{f"validation{p[3:]}": ids for p, ids in data.parts.items()}}
    if task == "mnli":
        parts["validation_matched"] = parts.pop("validation")
    return datasets.DatasetDict({name: split(ids) for name, ids in parts.items()})


MNLI = "index\tsentence1\tsentence2\tgold_label"


@pytest.mark.parametrize("task", ["cola", "mnli", "mrpc", "rte", "stsb"])
def test_the_hub_gives_what_the_files_give(
    data_root: Path, tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = data_root
    if task == "mnli":
        lines = ["0\ta\tb\tneutral", "1\tc\td\tentailment"]
        files = {"train": lines, "dev_matched": lines[:1], "dev_mismatched": lines[1:]}
        root = write(tmp_path / "files", task, MNLI, **files)
    data = load(str(root), task)
    asked = []
    splits = on_the_hub(data, task)
    fake = lambda *words: asked.append(words) or splits  # noqa: E731
    monkeypatch.setattr("datasets.load_dataset", fake)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.warns(UserWarning, match=r"no file .*vocab\.txt: the tokenizer comes from the"):
        found = glue.load(str(tmp_path / "none"), task=task)
    assert asked == [("nyu-mll/glue", task)] and found.vocabulary is None
    assert (found.train, found.parts, list(found.texts)) == (data.train, data.parts, [*data.texts])
    for text, expected in zip(found.texts.values(), data.texts.values()):
        assert (text.first, text.second) == (expected.first, expected.second)
    labels = [torch.tensor([t.label for t in d.texts.values()]) for d in (found, data)]
    assert torch.equal(*labels)  # scores too: in single precision, as the network sees them
    assert found.checksum == data.checksum or task == "stsb"


def test_without_files_and_hub_one_line_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(why: str) -> None:
        with pytest.raises(InputError, match=rf"SST-2: no such folder, .*\({why}.*put GLUE's TSV"):
            load(str(tmp_path), "sst2")

    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    refused(r"it needs datasets: run pip install '\.\[text\]'")

    def broken(*words: str) -> None:
        raise ConnectionError("no\nroute")

    # load_dataset tries again for half a minute, so it is not called
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=None))
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", broken)
    refused("ConnectionError: no route")
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    refused("OVERSMOOTHING_OFFLINE=1 forbids downloads")
