"""A sink that hangs or fails, as W&B may, does not touch the run."""

import threading
import warnings
from pathlib import Path

import pytest

from oversmoothing.lab.config.compose import compose_config
from oversmoothing.lab.launch.execute import execute, run_folder
from oversmoothing.lab.store import background


class Sink:
    """Does nothing, but for one method that hangs for ever, or fails."""

    def __init__(self, bad: str, folder: Path, config: object) -> None:
        self.bad = bad
        self("create")

    def __call__(self, method: object) -> None:
        name = method if isinstance(method, str) else "log"
        if self.bad == f"{name} hangs":
            threading.Event().wait()
        if self.bad == f"{name} fails":
            raise SystemExit(f"{name}\nfailed")

    def close(self) -> None:
        self("close")


@pytest.mark.parametrize("how", ["hangs", "fails"])
@pytest.mark.parametrize("method", ["create", "log", "close"])
def test_a_bad_sink_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, how: str
) -> None:
    monkeypatch.setattr(background, "START_SECONDS", 0.2)
    monkeypatch.setattr(background, "END_SECONDS", 0.2)
    words = ["data.num_nodes=400", "trainer.epochs=3", "seeds=[0]", "threads=1"]
    asked = compose_config([*words, f"paths.outputs={tmp_path}"])
    asked.logger = {"_target_": f"{__name__}.Sink", "_partial_": True, "bad": f"{method} {how}"}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert "0" in execute(asked)["seeds"]
    [line] = [str(warning.message) for warning in said if "logger" in str(warning.message)]
    assert ("no answer" if how == "hangs" else f"{method} failed") in line
    assert str(run_folder(asked)) in line and "\n" not in line
