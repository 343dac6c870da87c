"""A cheap part of the proofs: one run of every task that is trained, stopped, and run again.

Ids are those of ``runs.json``, and results within a tolerance that another CPU meets. What a stop
leaves is continued bit for bit on any machine. ``golden.py`` gives all proofs.
"""

import json
from pathlib import Path

import pytest
from golden_described import differences
from golden_runs import STOPPED, TESTED, golden

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "runs.json").read_text("utf-8"))["runs"]


@pytest.mark.parametrize("name", TESTED)
def test_a_small_run_gives_what_it_gave_and_goes_on_after_a_stop(name: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers" if name == "glue" else "torch")
    found = golden(name, tmp_path / "run")
    assert differences(found, EXPECTED[name], False) == []
    assert differences(golden(name, tmp_path / "stopped", STOPPED[name]), found, True) == []
