"""Recorded results: seeds of several tables, damage, size."""

import json
from pathlib import Path

import pytest
from guide import ROOT

from oversmoothing.errors import InputError
from oversmoothing.lab.report.results import merged_seeds, read_records, records_beside


def test_seeds_of_a_run_in_several_tables_are_merged(tmp_path: Path) -> None:
    for name, seeds in {"own": "02", "other": "0123"}.items():
        env = {"git": name, "device": "cpu"}
        record = {"id": "a", "seeds": dict.fromkeys(seeds, name), "seconds": 60.0, "env": env}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record))
    merged = records_beside(tmp_path / "own.jsonl")["a"]
    assert merged["seeds"] == {"0": "own", "1": "other", "2": "own", "3": "other"}
    assert merged["seconds"] == 90.0
    assert merged["env"] == {"git": "own / other", "device": "cpu"}
    assert set(records_beside(tmp_path / "other.jsonl")["a"]["seeds"].values()) == {"other"}


def test_seeds_of_other_data_are_not_merged() -> None:
    def result(seed: str, **env: str) -> dict:
        return {"seeds": {seed: {}}, "seconds": 1.0, "env": env}

    one, other = result("0", data="a"), result("1", data="b")
    assert merged_seeds(one, other) == one
    unknown = merged_seeds(one, result("2"))
    assert [*unknown["seeds"]] == ["0", "2"] and unknown["env"] == {"data": "a / None"}
    assert [*merged_seeds(unknown, result("3", data="a"))["seeds"]] == ["0", "2", "3"]


def test_damaged_records_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_text('{"id": "a"}\n<<<<<<< HEAD\n')
    with pytest.raises(InputError, match=r"records\.jsonl: a line is not a recorded result"):
        read_records(tmp_path / "records.jsonl")


def test_records_are_small() -> None:
    """Numbers per class and per layer, never per image."""
    for path in (ROOT / "results").glob("*.jsonl"):
        for line in read_records(path).values():
            for seed in line["seeds"].values():
                assert len(json.dumps(seed)) < 20_000, path.name
