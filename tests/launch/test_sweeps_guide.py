"""The Python of docs/guides/sweeps.md reads the results of a sweep."""

import re
from pathlib import Path

import pytest

from oversmoothing.lab.launch.command import configs
from oversmoothing.lab.launch.execute import execute

GUIDE = Path(__file__).parents[2] / "docs/guides/sweeps.md"
SWEEP = ["aggregator=centered", "aggregator.gamma=-1,0", "backbone.depth=2", "trainer.epochs=2"]
SWEEP += ["data.num_nodes=400", "seeds=[0,1]", "logger=none", "paths.outputs=outputs/gamma"]


def test_results_become_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    for config in configs(SWEEP, multirun=True):
        execute(config)
    [code] = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)
    names: dict = {}
    exec(compile(code, str(GUIDE), "exec"), names)
    counts = names["results"].groupby(names["swept"])["seed"].count()
    assert counts.to_dict() == {(-1, 2): 2, (0, 2): 2}
    assert "mean" in capsys.readouterr().out
