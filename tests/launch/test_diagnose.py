"""The command ``oversmoothing diagnose``, on models of three kinds."""

import csv
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import transformers as hf
from PIL import Image
from tiny_trained import trained
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

import oversmoothing as osm
from oversmoothing.lab.store.results import read_result

VIT = "vit_tiny_patch16_224"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for i in range(3):
        pixels = np.random.default_rng(i).integers(0, 255, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs the command in this process; exit code and the rows of the table that it writes."""

    def run(*words: str | Path) -> tuple[int, list[dict[str, str]]]:
        out = ["--out", str(tmp_path / "out"), "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", ["oversmoothing", "diagnose", *map(str, words), *out])
        with pytest.raises(SystemExit) as left:
            runpy.run_module("oversmoothing", run_name="__main__", alter_sys=True)
        table = tmp_path / "out" / "layers.csv"
        if not table.exists():
            return left.value.code, []
        assert (tmp_path / "out" / "layers.png").stat().st_size > 1000
        with table.open(newline="") as file:
            return left.value.code, list(csv.DictReader(file))

    return run


def test_a_model_of_timm_with_weights_of_a_file(command, photos: Path, tmp_path: Path, capsys):
    torch.manual_seed(0)
    model = timm.create_model(VIT)
    torch.save(model.state_dict(), tmp_path / "vit.pth")
    code, rows = command(f"timm:{VIT}", "--images", photos, "--weights", tmp_path / "vit.pth")
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
    images = [transform(Image.open(file)) for file in sorted(photos.iterdir())]
    expected = osm.diagnose(model, torch.stack(images))
    assert code == 0 and [row["layer"] for row in rows] == list(expected.layers)
    assert [float(row["cosine"]) for row in rows] == pytest.approx(expected["cosine"])
    assert "3 images of" in capsys.readouterr().out
    assert command(f"timm:{VIT}", "--images", photos, "--weights", "random")[0] == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --weights: random ") and "--weights none" in error


def test_random_weights_are_those_of_the_seed(command, photos: Path) -> None:
    words = ["timm:test_vit", "--images", photos, "--weights", "none", "--seed"]
    found = [command(*words, seed)[1] for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_a_model_of_transformers_from_a_folder(
    command, photos: Path, tmp_path: Path, capsys
) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "runs", "fast"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = hf.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 9}
    model = hf.BertModel(hf.BertConfig(**sizes, intermediate_size=8))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "bert")
    texts = tmp_path / "texts.txt"
    texts.write_text("a dog\n\na dog runs fast\n")
    code, rows = command(f"hf:{tmp_path / 'bert'}", "--text", texts, "--reference", "random")
    inputs = tokenizer(["a dog", "a dog runs fast"], padding=True, return_tensors="pt")
    expected = osm.diagnose(model, **inputs)
    assert code == 0 and len(rows) == 2
    assert [float(row["cosine"]) for row in rows] == pytest.approx(expected["cosine"], rel=1e-5)
    assert {"cosine_reference", "norm_std"} <= rows[0].keys()
    assert command(f"hf:{tmp_path / 'bert'}", "--images", photos)[0] == 2
    assert "--text FILE" in capsys.readouterr().err


def test_long_texts_are_cut_to_the_positions_of_a_model(command, tmp_path: Path, capsys) -> None:
    plain = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="a"))
    plain.pre_tokenizer = WhitespaceSplit()
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=plain)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "vocab_size": 9}
    model = hf.BertModel(hf.BertConfig(**sizes, intermediate_size=8, max_position_embeddings=4))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "bert")
    texts = tmp_path / "texts.txt"
    texts.write_text("a b " * 9)
    words = (f"hf:{tmp_path / 'bert'}", "--text", texts)
    assert command(*words)[0] == 2
    assert "its tokenizer has no token for padding; give --batch 1" in capsys.readouterr().err
    code, rows = command(*words, "--batch", 1)
    assert code == 0 and len(rows) == 2


def test_a_run_has_the_numbers_of_its_own_evaluation(command, tmp_path: Path) -> None:
    run = trained("none", tmp_path)
    own = read_result(run)["seeds"]["0"]["layers_after"]
    code, rows = command(run)
    assert code == 0
    for metric in ("cosine", "effective_rank"):
        assert [float(row[metric]) for row in rows] == pytest.approx(own[metric], rel=1e-4)
    other = tmp_path / "nodes-x"
    other.mkdir()
    (other / "config.yaml").write_text(json.dumps({"task": {"_target_": "x"}}))
    assert command(other)[0] == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["timm:vit_tiny_patch16_225"], "vit_tiny_patch16_224"),
        ([f"timm:{VIT}"], "--images"),
        ([f"timm:{VIT}", "--images", "nowhere"], "--images: nowhere"),
        ([f"timm:{VIT}", "--images", ".", "--text", "x"], "--text"),
        (["hf:nowhere"], "--text FILE and --images DIR"),
        (["hf:nowhere", "--text", "nowhere"], "--text"),
        (["nowhere"], "nowhere: "),
        (["vit_tiny", "--images", "."], "timm:vit_tiny or hf:vit_tiny"),
    ],
)
def test_bad_input_is_one_line(command, capsys, words: list[str], named: str) -> None:
    assert command(*words)[0] == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and named in error


def test_nothing_is_downloaded_offline(
    command, photos: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict] = []
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    monkeypatch.setattr(
        hf.AutoModel,
        "from_pretrained",
        lambda name, **given: asked.append(given) or 1 / 0,
    )
    assert command("hf:model", "--images", photos)[0] == 2 and asked == [{"local_files_only": True}]
    assert command("timm:vit_tiny_patch16_224", "--images", photos)[0] == 2
    assert "OVERSMOOTHING_OFFLINE=1 forbids downloads; give --weights" in capsys.readouterr().err


def test_timm_needs_no_hydra(photos: Path, tmp_path: Path) -> None:
    """A model of timm is measured without the packages that only experiments need."""
    blocked = ("hydra", "omegaconf", "torch_geometric", "transformers", "wandb", "matplotlib")
    code = f"""
import sys
sys.modules |= dict.fromkeys({blocked!r})
sys.argv = ["x", "diagnose", "timm:{VIT}", "--images", {str(photos)!r}, "--weights", "none",
            "--limit", "1", "--out", {str(tmp_path)!r}]
import runpy
runpy.run_module("oversmoothing", run_name="__main__", alter_sys=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "blocks.11" in done.stdout and "needs matplotlib" in done.stderr
    assert (tmp_path / "layers.csv").exists()
