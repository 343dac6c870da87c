"""Cosine and rank by layer during training: they are logged, and change nothing else."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from run_log import log_lines

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.command import command

sys.path.append(str(Path(__file__).parents[1] / "golden"))
from golden_described import numbers  # noqa: E402
from golden_runs import STOPPED, golden  # noqa: E402

LOGS = ("logs", "last")


def without_logs(runs: dict[str, Any]) -> dict[str, Any]:
    own = [{key: run[key] for key in run if key not in LOGS} for run in runs["runs"]]
    return runs | {"runs": own}


def run_of(folder: Path) -> Path:
    [run] = (path.parent for path in folder.glob("outputs/*/result.json"))
    return run


@pytest.mark.parametrize(
    "name", ["nodes, centered", "minibatch, random", "wsss", "classification", "glue"]
)
def test_layers_are_measured_and_no_number_changes(name: str, tmp_path: Path) -> None:
    """Also if the run is stopped within a step: ids, results, weights and other lines stay."""
    plain, measured = tmp_path / "plain", tmp_path / "measured"
    expected = golden(name, plain)
    found = golden(name, measured, STOPPED.get(name, ())[:1], ["diagnose_every=1"])
    assert without_logs(found) == without_logs(expected)
    lines = [numbers(line) for line in log_lines(run_of(measured))]
    layers = [line for line in lines if {*line} <= {"seeds", "epoch", "step", "layers"}]
    assert [line for line in lines if line not in layers] == [
        numbers(line) for line in log_lines(run_of(plain))
    ]
    axis = "epoch" if "epoch" in layers[0] else "step"
    result = json.loads((run_of(measured) / "result.json").read_text("utf-8"))
    for seed, own in result["seeds"].items():
        of_seed = [line for line in layers if int(seed) in line["seeds"]]
        assert [line[axis] for line in of_seed] == [*range(len(of_seed))]
        at = of_seed[-1]["seeds"].index(int(seed))
        last = of_seed[-1]["layers"][at]
        assert {"cosine", "effective_rank"} <= {*last}
        assert own.get("layers_after", last) == last  # the same images and sentences


def test_a_task_that_measures_no_layers_refuses(generated: Path) -> None:
    words = ["task=segmentation", "data=scenes", "backbone=resnet18", "trainer=emanet"]
    words += ["data.num_train=8", "data.num_val=4", f"paths.cache={generated}"]
    for more in (["diagnose_every=5"], ["diagnose_every=-1"]):
        with pytest.raises(InputError) as raised:
            command([*words, "aggregator=none", *more])
        assert raised.value.key == "diagnose_every"
