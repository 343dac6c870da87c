"""The recorded results of tables: ``results/<table>.jsonl``, one line for each run."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from oversmoothing.errors import InputError
from oversmoothing.lab.store.environment import shared_environment

CAUSES = {  # of another result for the same seed: name -> key of the environment
    "commit": "git",
    "version": "version",
    "torch": "torch",
    "on": "device",
    "with": "cpu_capability",
    "data": "data",
}
Records = Mapping[str, dict[str, Any]]  # run id -> result


def read_records(path: Path) -> Records:
    """Reads results from a file of JSON lines; empty if there is no file."""
    if not path.exists():
        return {}
    try:
        return _parsed(path.read_text("utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: a line is not a recorded result ({error}); restore the file with git"
        ) from None


@lru_cache(maxsize=256)
def _parsed(text: str) -> Records:
    """Parses the lines of a file, which the reports of many tables read. Do not change them."""
    return {line["id"]: line for line in map(json.loads, text.splitlines())}


def records_beside(path: Path) -> Records:
    """Reads the results of a table and of the tables next to it, which may share runs.

    If a seed is in several files, the record of the table itself is used.
    """
    found: dict[str, dict[str, Any]] = {}
    for file in (path, *sorted(path.parent.glob("*.jsonl"))):
        for name, record in read_records(file).items():
            found[name] = merged_seeds(found.get(name, record), record)
    return found


def merged_seeds(result: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Adds seeds of another result of the same run, and their share of its time.

    If the checksums of the data differ, no seeds are added.
    """
    added = {seed: own for seed, own in other["seeds"].items() if seed not in result["seeds"]}
    if not added or len(_checksums(result) | _checksums(other)) > 1:
        return result
    seeds = sorted((result["seeds"] | added).items(), key=lambda item: int(item[0]))
    seconds = result["seconds"] + other["seconds"] * len(added) / len(other["seeds"])
    env = shared_environment([result["env"], other["env"]])
    return {**result, "seeds": dict(seeds), "seconds": round(seconds, 2), "env": env}


def differences(env: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Returns what may explain another result, such as `` (commit 881cc48c5962)``, or nothing."""
    found = {name: env.get(key) for name, key in CAUSES.items() if env.get(key) != other.get(key)}
    words = [f"{name} {value}" for name, value in found.items() if value]
    return f" ({', '.join(words)})" if words else ""


def _checksums(result: dict[str, Any]) -> set[str]:
    """Returns the data checksums of a result; records of earlier versions may have several."""
    return {*str(result["env"].get("data")).split(" / ")} - {"None"}


def json_lines(records: Iterable[dict[str, Any]]) -> str:
    """Formats records as JSON lines, sorted by name."""
    ordered = sorted(records, key=lambda record: (record["name"], record["id"]))
    return "".join(json.dumps(record, sort_keys=True) + "\n" for record in ordered)
