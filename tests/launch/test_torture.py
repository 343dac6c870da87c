"""A short form of `make torture`, with fixed seeds.

Kills and sweeps are in test_execute.py, processes in test_orphans.py, W&B in test_background.py.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def areas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def test_a_loss_of_power(tmp_path: Path, areas: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from torture_areas import power_loss

    monkeypatch.setattr(power_loss, "TRIALS", 8)
    with pytest.warns(UserWarning):
        found = [power_loss.tried(trial) for _, trial in power_loss.trials(7, tmp_path)]
    assert found == [""] * 8


def test_a_difference_is_seen(tmp_path: Path, areas: None) -> None:
    """The comparison behind the counts: a bit of a weight, a line of the log, a file more."""
    import torch
    from torture_areas.compare import difference

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text('{"seeds": {"0": {"loss": 1.0}}}')
        (tmp_path / name / "metrics.jsonl").write_text('{"seeds": [0], "loss": 1.0}\n')
        torch.save({"w": torch.ones(3)}, tmp_path / name / "weights-seed0.pt")
    a, b = tmp_path / "a", tmp_path / "b"
    assert difference(a, b) == ""
    torch.save({"w": torch.tensor([1.0, 1.0, 1 + 2**-23])}, b / "weights-seed0.pt")
    assert "weights-seed0.pt" in difference(a, b)
    (b / ".config.yaml.123").touch()
    assert "other files" in difference(a, b)
    (b / "metrics.jsonl").write_text("")
    assert "another log: 0 of 1" in difference(a, b)
    (b / "result.json").write_text('{"seeds": {"0": {"loss": 2.0}}}')
    assert difference(a, b) == "another result"


@linux
def test_generated_commands(tmp_path: Path, areas: None) -> None:
    pytest.importorskip("hypothesis")
    from torture_areas import generated

    commands = generated.draw(3, 8, tmp_path)
    assert commands == generated.draw(3, 8, tmp_path)
    found = list(generated._in_one_process(commands))
    assert len(found) == 8 and {failure for _, failure in found} == {""}
