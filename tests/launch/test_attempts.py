"""Runs of a command one by one: failures, and runs that another process holds."""

import threading
import time
from functools import partial
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from oversmoothing.lab.launch import command as attempts
from oversmoothing.lab.launch.command import BUSY, attempt, run_all
from oversmoothing.lab.launch.config import compose_config
from oversmoothing.lab.launch.execute import finished, run_folder
from oversmoothing.lab.store.identity import run_id
from oversmoothing.lab.store.results import write_result
from oversmoothing.lab.store.run import locked

QUICK = ["data=sbm", "data.num_nodes=400", "seeds=[0]", "logger=none", "threads=1"]


@pytest.fixture
def configs(tmp_path: Path) -> list[DictConfig]:
    words = [*QUICK, "trainer.epochs=3", f"paths.outputs={tmp_path}"]
    return [compose_config([*words, f"backbone.depth={depth}"]) for depth in (1, 2)]


def test_a_run_whose_process_dies_is_reported_and_the_rest_is_run(
    configs: list[DictConfig], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """As after a kill for lack of memory: running and waiting runs continue."""
    dies, lives = configs
    run = "__import__('os')._exit(3) if backbone.depth == 1 else f'run {seeds[0]}'"
    monkeypatch.setattr(attempts, "attempt", partial(eval, run, {}))  # needs no torch
    others = [OmegaConf.merge(lives, {"seeds": [seed]}) for seed in range(3)]
    said = run_all([others[0], dies, *others[1:]], jobs=2)
    (failure,) = (line for line in said if not line.startswith("run "))
    assert failure.startswith(f"{run_folder(dies).name}: its process died, killed for lack of")
    assert capsys.readouterr().err == f"error: {failure}\n"
    assert sorted({*said} - {failure}) == ["run 0", "run 1", "run 2"]


def test_an_output_that_nobody_reads_ends_the_command_but_is_no_failure(
    configs: list[DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(attempts, "_show", closed)
    with pytest.raises(BrokenPipeError):
        run_all(configs)
    assert [finished(config) for config in configs] == [True, False]


def test_a_run_of_another_process_is_waited_for_at_the_end(configs: list[DictConfig]) -> None:
    first, second = configs
    held = threading.Event()

    def hold() -> None:
        with locked(run_folder(first)):
            held.set()
            while not finished(second):
                time.sleep(0.05)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(10)
    assert attempt(first) == BUSY
    assert run_all(configs) == []
    assert finished(first)


def test_what_another_process_has_finished_was_already_there(
    configs: list[DictConfig], capsys: pytest.CaptureFixture
) -> None:
    """The result comes while this process waits for the lock."""
    with locked(run_folder(configs[0])):
        waiting = threading.Thread(target=attempt, args=(configs[0],), kwargs={"wait": True})
        waiting.start()
        time.sleep(0.3)
        folder = run_folder(configs[0])
        found = {"id": run_id(configs[0]), "name": folder.name, "seconds": 46.0, "env": {}}
        write_result(folder, found | {"seeds": {"0": {"loss": 1.0}}})
    waiting.join()
    assert "(1 seed, already there)" in capsys.readouterr().out
