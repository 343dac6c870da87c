"""What a user runs writes below outputs, never into a file that git tracks."""

import json
from pathlib import Path

import pytest
from in_process import ROOT, here

COMMANDS = {  # words: files below outputs
    "table contranorm_loss --draw": "contranorm_loss.jsonl tables/contranorm_loss.md "
    "tables/contranorm_loss.csv",
    "table gcnii --draw --columns L=2": "gcnii.jsonl figures/gcnii.png",
    "figure claims --only centered_prop1 --recorded": "claims.json claims.md",
    "figure cures --draw": "cures.csv tables/cures.md figures/cures.png",
    "figure curves cls_pretrained": "figures/cls_pretrained_curves.png",
    "figure speed": "figures/speed.png tables/speed.md",
    "figure elbo --runs 1 --iterations 2": "elbo.json tables/elbo.md",
}
TABLE = """
tables:
  small:
    {title: Small, source: here, ours: true, experiment: gnn_table5, metric: test_accuracy,
     unit: "%", overrides: [data=sbm, data.num_nodes=310, trainer.epochs=2, "seeds=[0,1]"],
     columns: {L=2: [backbone.depth=2]}, rows: {none: {overrides: [aggregator=none]}}}
"""


def tracked() -> dict[Path, int]:
    """When each file of results and docs was written."""
    files = [path for part in ("results", "docs") for path in (ROOT / part).rglob("*.*")]
    return {path: path.stat().st_mtime_ns for path in [*files, ROOT / "README.md"]}


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_writes_below_outputs(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    before = tracked()
    assert not here(words.split(), monkeypatch)
    assert tracked() == before
    assert capsys.readouterr().out.strip(), "the result is printed"
    for name in COMMANDS[words].split():
        assert (tmp_path / "outputs" / name).stat().st_size, name


@pytest.mark.parametrize("words", ["figure deep_gcns", "table gcnii", "tune table6", "report"])
def test_a_folder_that_cannot_be_written_is_named_before_any_work(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").write_text("a file in its place")
    assert here(words.split(), monkeypatch) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("error: outputs: ")


def test_a_table_keeps_recorded_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another result for a recorded seed is neither shown nor recorded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/expected").mkdir(parents=True)
    (tmp_path / "mine/expected/small.yaml").write_text(TABLE)
    how = ["--", "threads=1", "logger=none", "paths.outputs=runs"]
    assert not here(["table", "small", "--results", "mine", *how], monkeypatch)
    path = tmp_path / "mine/small.jsonl"
    record = json.loads(path.read_text())
    record["seeds"]["0"]["test_accuracy"], record["seconds"] = 12.5, 99.0
    path.write_text(json.dumps(record, sort_keys=True) + "\n")
    assert not here(["table", "small", "--results", "mine", *how], monkeypatch)
    assert json.loads(path.read_text()) == record
