"""Results of version 1 get the names and ids of version 2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from oversmoothing.config.compose import compose_config
from oversmoothing.errors import InputError
from oversmoothing.store.identity import former_id, run_id, run_name
from oversmoothing.store.migrate import migrate_records, migrate_run

SCRIPT = Path(__file__).parents[2] / "scripts/migrate.py"
V1 = {  # paths of version 1 in today's config of the same run
    "task": "oversmoothing.tasks.nodes.run",
    "backbone": "oversmoothing.backbones.gcn.GCN",
    "trainer": "oversmoothing.tasks.nodes.Trainer",
    "data": "oversmoothing.data.graphs.load",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run as version 1 left it."""
    config = compose_config(["data=cora", "aggregator=centered", "backbone.depth=4"])
    for part, target in V1.items():
        config[part]._target_ = target
    folder = tmp_path / "nodes-cora-centered-0123456789"
    folder.mkdir()
    OmegaConf.save(config, folder / "config.yaml")
    plain = OmegaConf.to_container(config, resolve=False)
    result = {"id": "0123456789", "name": folder.name, "config": plain, "seeds": {"0": {"a": 0.1}}}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "weights-seed0.pt").write_bytes(b"weights")
    return folder


def test_a_run_gets_the_name_that_its_command_had_in_version_2(run: Path) -> None:
    """Today's is another one, since the network has other random numbers."""
    today = compose_config(["data=cora", "aggregator=centered", "backbone.depth=4"])
    name = run_name(today).replace(run_id(today), former_id(today))
    assert migrate_run(run, dry_run=True) == f"{run.name} -> {name}"
    assert run.exists() and name != run_name(today)
    migrate_run(run)
    moved = run.with_name(name)
    result = json.loads((moved / "result.json").read_text())
    assert (result["id"], result["name"]) == (former_id(today), moved.name)
    assert result["seeds"] == {"0": {"a": 0.1}}
    assert (moved / "weights-seed0.pt").read_bytes() == b"weights"
    saved = OmegaConf.load(moved / "config.yaml")
    assert saved == today and not run.exists()
    assert migrate_run(moved) is None


def test_an_interrupted_migration_is_finished(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("oversmoothing.store.migrate.write_text", killed)
        migrate_run(run)
    [folder] = run.parent.iterdir()
    migrate_run(folder)
    assert json.loads((folder / "result.json").read_text())["name"] == folder.name
    assert migrate_run(folder) is None


def test_two_runs_never_become_one(run: Path) -> None:
    (run.parent / migrate_run(run, dry_run=True).rpartition(" ")[2]).mkdir()
    with pytest.raises(InputError, match="exists already"):
        migrate_run(run)
    assert (run / "result.json").exists()


def test_records_keep_their_numbers(tmp_path: Path) -> None:
    config = {part: {"_target_": target} for part, target in V1.items()}
    config["backbone"]["depth"] = 4.0
    record = {"id": "01", "name": "nodes-graphs-01", "config": config, "seeds": {"0": {"a": 0.1}}}
    path = tmp_path / "table.jsonl"
    path.write_text(json.dumps(record) + "\n")
    [change] = migrate_records(path)
    [migrated] = map(json.loads, path.read_text().splitlines())
    assert migrated["seeds"] == record["seeds"] and migrated["name"] == change.rpartition(" ")[2]
    assert migrated["config"]["backbone"] == {"_part_": "backbone/gcn", "depth": 4.0}
    assert migrate_records(path) == []


def test_the_script_goes_on_after_a_damaged_folder(run: Path) -> None:
    damaged = run.with_name("damaged")
    damaged.mkdir()
    (damaged / "config.yaml").write_text("task: {")
    command = [sys.executable, SCRIPT, run.parent]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "1 results migrated" in done.stdout
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    done = subprocess.run([*command[:2], "nowhere"], capture_output=True, text=True)
    assert done.returncode == 2 and "error: nowhere: no such file or folder" in done.stderr
