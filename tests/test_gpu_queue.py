"""``make gpu``: its commands exist, time is kept, and what is done is not done again."""

import json
import shlex
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def gpu():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu

    yield gpu
    sys.path.remove(str(ROOT / "benchmarks"))


def test_the_queue_names_files_cases_and_tables_that_exist(gpu) -> None:
    cases = "".join(path.read_text("utf-8") for path in (ROOT / "benchmarks").glob("*_cases.py"))
    tables = "".join(path.read_text("utf-8") for path in (ROOT / "results/expected").glob("*.yaml"))
    for item in gpu.queue():
        assert item["minutes"] > 0 and item["why"]
        for command in item["commands"]:
            words = shlex.split(command)
            assert words[0] == "python"
            if "benchmarks/bench.py" in words:
                assert f"def {words[2]}(" in cases
            elif "table" in words:
                assert f"  {words[words.index('table') + 1]}:\n" in tables
            else:
                assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))


def command(code: str) -> str:
    return shlex.join(["python", "-c", code])


def test_time_is_kept_and_only_unfinished_items_run_again(gpu, tmp_path: Path) -> None:
    first, slow = tmp_path / "first", tmp_path / "slow"
    tell = f"open({str(first)!r}, 'a').write('x')"
    saves = f"import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: open({str(slow)!r}, 'w')"
    items = [
        {"name": "first", "minutes": 0.01, "commands": [command(tell), command(tell)]},
        {"name": "fails", "minutes": 0.01, "commands": [command("raise SystemExit(1)")]},
        {"name": "long", "minutes": 90, "commands": [command(tell)]},
        {"name": "slow", "minutes": 90, "at_least": 0, "commands": [command(saves)]},
    ]
    items = [{"why": "a test", **item} for item in items]
    plan = [*gpu.plan(items, tmp_path / "log", 0.07)]
    assert [" gets " in line for line in plan] == [True, True, False, True]
    began = time.monotonic()
    for part in (items[:3], items[3:]):  # so that the last one has time to begin
        gpu.work(part, tmp_path / "log", 0.07)
    assert time.monotonic() - began < 55  # the last item would sleep for 60 seconds
    assert first.read_text() == "xx" and slow.exists(), "interrupted, not killed"
    assert list(json.loads((tmp_path / "log/done.json").read_text())) == ["first"]
    assert "done before" in next(gpu.plan(items, tmp_path / "log", 0.07))
    gpu.work(items[:2], tmp_path / "log", 0.1)
    assert first.read_text() == "xx"
