"""Exported runs: their files, equal numbers after a round trip, and refusals."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from test_loading_runs import TINY
from test_loading_segmentation import SEGMENTATION

import oversmoothing as osm
from oversmoothing.errors import InputError
from oversmoothing.lab.launch import loading
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.launch.export import export
from oversmoothing.lab.launch.retrace import command_of
from oversmoothing.lab.store.identity import run_id
from oversmoothing.lab.store.results import read_result
from oversmoothing.lab.store.weights import SHARED, read_weights, share_weights

ROOT = Path(__file__).parents[2]
TASKS = ("wsss", "segmentation")


@pytest.fixture(scope="module", params=["wsss", "segmentation"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    """A run and its export."""
    outputs = tmp_path_factory.mktemp("outputs")
    # The state of γ's warm-up is not a tensor.
    words = [*TINY, "aggregator.warmup=4"] if request.param == "wsss" else SEGMENTATION
    config = compose_config([*words, f"paths.outputs={outputs}"])
    execute(config)
    run = run_folder(config)
    export(str(run), outputs / "exported")
    return run, outputs / "exported"


def script(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Exit code of a script in this process: a new one takes seconds to start."""
    monkeypatch.setattr(sys, "argv", [str(word) for word in words])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(ROOT / "scripts" / str(words[0])), run_name="__main__")
    return left.value.code


def test_the_network_is_the_same(both: tuple[Path, Path]) -> None:
    run, exported = (loading.load(folder, on="cpu", tasks=TASKS) for folder in both)
    assert (exported.seed, exported.label_names) == (run.seed, run.label_names)
    assert run_id(exported.config) == run_id(run.config)
    own, other = run.network.state_dict(), exported.network.state_dict()
    assert list(own) == list(other)
    for key, value in own.items():
        assert torch.equal(value, other[key]), key
    torch.manual_seed(0)
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(run.network.segment(images), exported.network.segment(images))


def test_the_card_tells_what_is_known(both: tuple[Path, Path]) -> None:
    run, exported = both
    text = (exported / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["pipeline_tag"] == "image-segmentation"
    [result] = read_result(run)["seeds"].values()
    for stage, how in result["conditions"]["val"].items():
        if f"val_{stage}_miou" in result:
            assert f"| val | {stage} | {result[f'val_{stage}_miou']:.2f} | {how} |" in body
    loaded = loading.load(run, on="cpu", tasks=TASKS)
    command = command_of(loaded.config, loaded.seed)
    # The backbone's weights are set to none in a loaded config; the tiny runs have none anyway.
    assert command and command in body
    assert str(run.parent) not in text + (exported / "config.yaml").read_text()


def test_evaluate_measures_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    config = compose_config([*TINY, "seeds=[0,1]", f"paths.outputs={tmp_path}"])
    execute(config)
    run, exported = run_folder(config), tmp_path / "exported"
    assert script(monkeypatch, "export.py", "--run", run, "--to", exported) == 2
    assert "several seeds; choose one with --seed 0 or 1" in capsys.readouterr().err
    assert script(monkeypatch, "export.py", "--run", run, "--to", exported, "--seed", 1) == 0
    capsys.readouterr()
    tables = []
    for words in ([run, "--seed", "1"], [exported]):
        assert script(monkeypatch, "evaluate.py", "--device", "cpu", "--run", *words) == 0
        tables.append(capsys.readouterr().out.rsplit("\n\n", 1)[0])
    assert tables[0] == tables[1]
    [path] = exported.glob("evaluation-*.json")
    [(seed, found)] = json.loads(path.read_text())["seeds"].items()
    assert seed == "1"
    assert found["val_seg_miou"] == execute(config)["seeds"]["1"]["val_seg_miou"]


def on_hub(folder: Path, cache: Path, name: str) -> None:
    """Lays a folder out as the hub's cache does."""
    base, commit = cache / f"models--{name.replace('/', '--')}", "0" * 40
    (base / "refs").mkdir(parents=True)
    (base / "refs/main").write_text(commit)
    shutil.copytree(folder, base / "snapshots" / commit)


def test_from_the_hub(
    both: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = both[1]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    on_hub(exported, tmp_path, "someone/network")
    monkeypatch.setenv("OVERSMOOTHING_OFFLINE", "1")
    run = loading.load("hf:someone/network", on="cpu", tasks=TASKS)
    assert run.folder.is_relative_to(tmp_path)
    with pytest.raises(InputError, match=r"hf:someone/other: not available \(OVERSMOOTHING_OFFL"):
        loading.load("hf:someone/other", tasks=TASKS)
    monkeypatch.delenv("OVERSMOOTHING_OFFLINE")

    def download(name: str, allow_patterns: list[str]) -> str:
        if name == "no/network":
            raise ConnectionError("no\nroute")
        return str(exported)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert loading.load("hf:someone/other", on="cpu", tasks=TASKS).folder == exported
    with pytest.raises(InputError, match=r"no/network: not available \(ConnectionError: no route"):
        loading.load("hf:no/network", tasks=TASKS)
    with pytest.raises(InputError, match="expected hf:ORG/NAME"):
        loading.load("hf:network", tasks=TASKS)


@pytest.mark.parametrize("target", ["os.system", "oversmoothing.lab.store.files.os.remove"])
def test_a_config_from_the_hub_calls_no_foreign_code(
    both: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    copy = shutil.copytree(both[1], tmp_path / "copy")
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["aggregator"]["extra"] = [{"_target_": target, "path": str(copy / "README.md")}]
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    on_hub(copy, tmp_path / "cache", "someone/bad")
    with pytest.raises(InputError, match=f"names {target}, which is not part of oversmoothing"):
        loading.load("hf:someone/bad", tasks=TASKS)
    assert (copy / "README.md").exists()


def test_bad_input_is_refused_and_nothing_is_left(both: tuple[Path, Path], tmp_path: Path) -> None:
    run, exported = both
    before = sorted(exported.iterdir())
    with pytest.raises(InputError, match="exists already"):
        export(str(run), exported)
    assert sorted(exported.iterdir()) == before
    bare = shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("weights-*"))
    with pytest.raises(InputError, match="its weights are missing"):
        export(str(bare), tmp_path / "new")
    with pytest.raises(InputError, match="no weights of seed 7"):
        export(str(run), tmp_path / "new", seed=7)
    odd = shutil.copytree(run, tmp_path / "odd")
    result = read_result(run)
    for change in ({"envs": []}, {"seeds": dict.fromkeys(result["seeds"], {"conditions": 5})}):
        (odd / "result.json").write_text(json.dumps(result | change))
        with pytest.raises(InputError, match=r"result\.json: not what a run writes"):
            export(str(odd), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    copy = shutil.copytree(exported, tmp_path / "damaged")
    weights = copy / SHARED
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged, cannot be read as weights; export the run"):
        loading.load(copy, tasks=TASKS)
    share_weights(weights, {"classifier.weight": torch.zeros(5, 64, 1, 1)})
    with pytest.raises(InputError, match=r"does not fit the config\.yaml"):
        loading.load(copy, tasks=TASKS)


def test_no_number_of_the_state_changes(tmp_path: Path) -> None:
    """Also of tensors that share memory or are views."""
    shared = torch.randn(4, 6)
    state = {"a": shared, "b": shared, "c": shared.T}
    share_weights(tmp_path / SHARED, state)
    found = read_weights(tmp_path / SHARED)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[key], state[key]) for key in state)


def test_aggregators_without_extra_state_are_exported(tmp_path: Path) -> None:
    """Those in a site leave theirs out, those beside one have None."""

    def network() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(2, 3), osm.Centered(), osm.Centered(warmup=4))

    model, again = network(), network()
    model[2].advance(1)
    share_weights(tmp_path / SHARED, model.state_dict())
    again.load_state_dict(read_weights(tmp_path / SHARED))
    assert again[2].progress == 0.25 and torch.equal(again[0].weight, model[0].weight)
