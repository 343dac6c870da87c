"""Gives results of earlier versions the names and ids of this one.

Version 1 hashed the dotted paths of classes; version 2 hashes public names (see ``identity.py``).
Every step is a file written whole or a folder renamed, and a result that has been migrated is left
alone, so an interrupted migration is finished by running it again.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.store.claims import claimed
from oversmoothing.store.files import OUTPUTS, write_text, writing
from oversmoothing.store.identity import current, hashed, identity, run_id, run_name


def migrate_records(path: Path, dry_run: bool = False) -> list[str]:
    """Gives the records of a JSON Lines file their present ids; one line for each that changed.

    Raises:
        InputError: the file is damaged or cannot be written.
    """
    try:
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        migrated = [_migrated_record(record) for record in records]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is no file of records ({error}); restore it from git") from error
    changes = [f"{a['name']} -> {b['name']}" for a, b in zip(records, migrated) if a != b]
    if changes and not dry_run:
        write_text(path, json_lines(migrated))
    return changes


def _migrated_record(record: dict[str, Any]) -> dict[str, Any]:
    if "version" in record["config"]:
        return record
    found = identity(record["config"], frozen=True)
    stem = record["name"].removesuffix(record["id"])
    return record | {"config": found, "id": hashed(found), "name": stem + hashed(found)}


def json_lines(records: Iterable[dict[str, Any]]) -> str:
    """Records as text, one a line, sorted by name."""
    ordered = sorted(records, key=lambda record: (record["name"], record["id"]))
    return "".join(json.dumps(record, sort_keys=True) + "\n" for record in ordered)


def migrate_run(folder: Path, dry_run: bool = False) -> str | None:
    """Gives a run folder its present id; one line that says so, None if it has it.

    The folder is renamed first; its config is rewritten last and marks the end.

    Raises:
        InputError: the folder is damaged, or another folder has the new name.
        Busy: a process is at this run.
    """
    try:
        config = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"), resolve=False)
        if not config["task"]["_target_"].endswith(".run"):  # as tasks were called in version 1
            return None
        config = OmegaConf.create(current(config))
        name = run_name(config, frozen=True)
    except Exception as error:  # whatever a damaged file, or one of other code, makes them raise
        reason = str(error).split("\n")[0][:80]
        raise InputError(f"{folder}: config.yaml cannot be read ({reason}); left alone") from error
    target = folder.with_name(name)
    if target != folder and target.exists():
        raise InputError(f"{folder}: {name} exists already; remove one of the two")
    if not dry_run:
        with claimed(folder), writing(folder, OUTPUTS):
            folder.rename(target)
            _rewrite(target, config)
    return f"{folder.name} -> {name}"


def _rewrite(folder: Path, config: DictConfig) -> None:
    own = {"id": run_id(config, frozen=True), "name": folder.name}
    own["config"] = OmegaConf.to_container(config, resolve=False)
    results = [(path, own) for path in folder.glob("result.json")]
    results += [(path, {"run": folder.name}) for path in folder.glob("evaluation-*.json")]
    for path, changes in results:
        write_text(path, json.dumps(json.loads(path.read_text("utf-8")) | changes, indent=1) + "\n")
    write_text(folder / "config.yaml", OmegaConf.to_yaml(config))
