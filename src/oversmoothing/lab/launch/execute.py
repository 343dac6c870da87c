"""Runs a composed config and stores its result."""

import contextlib
import time
import traceback
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing import distributed
from oversmoothing.errors import InputError
from oversmoothing.lab.config.instantiate import build
from oversmoothing.lab.launch.start import Start
from oversmoothing.lab.processes import group
from oversmoothing.lab.store import checkpoints
from oversmoothing.lab.store.background import Background
from oversmoothing.lab.store.environment import device, environment, shared_environment
from oversmoothing.lab.store.files import OUTPUTS, write_text
from oversmoothing.lab.store.identity import run_id, run_name
from oversmoothing.lab.store.locks import locked
from oversmoothing.lab.store.own_code import own_code
from oversmoothing.lab.store.recorder import Recorder, read_result, write_result
from oversmoothing.lab.tasks.base import Job, Result


def execute(config: DictConfig, wait: bool = False, start: Start | None = None) -> dict[str, Any]:
    """Runs a config like ``obtain``, and returns only the result."""
    return obtain(config, wait, start)[0]


def obtain(
    config: DictConfig, wait: bool = False, start: Start | None = None
) -> tuple[dict[str, Any], bool]:
    """Runs the seeds of a config that have no result in the store.

    Seeds are not part of a run's identity, so asking for more seeds trains only the new ones.

    Args:
        config: composed and checked.
        wait: wait if another process works on this run.
        start: what the check has built for this run; None: build it now.

    Returns:
        The content of ``result.json``, and whether no seed had to be run. That is also true if
        another process finished the run in the meantime.

    Raises:
        Busy: another process works on this run.
        InputError: bad input. The traceback of any error is left in ``error.txt``.
    """
    folder = run_folder(config)
    with group(device(config.device)), locked(folder, wait):
        first = distributed.rank() == 0
        known = distributed.from_first(known_result(config) if first else None) or {}
        if first:
            _tell_of_other_code(folder, known, own_code(config))
        if not (missing := missing_seeds(config, known)):
            if first:
                checkpoints.remove_of(folder, [int(seed) for seed in known["seeds"]])
            return known, True
        _write_config(folder, config)
        with _leaving_errors(folder), _sink(folder, config) as sink:
            known = _trained(folder, config, known, missing, start or Start(config), sink)
        return known, False


def _trained(
    folder: Path,
    config: DictConfig,
    known: dict[str, Any],
    missing: list[int],
    start: Start,
    sink: Any,
) -> dict[str, Any]:
    """Runs the missing seeds group by group; returns the stored result after the last group."""
    env = {**environment(config.device), "data": getattr(start.parts.data, "checksum", None)}
    env |= {"code": code} if (code := own_code(config)) else {}
    _require_same_data(folder, known, env["data"])
    for seeds in start.groups(missing):
        began = time.monotonic()
        logged = known.get("logged_bytes", 0)
        recorder = Recorder(folder, seeds, config.checkpoint_seconds, logged, sink)
        job = Job(start.parts, seeds, recorder, start.device)
        fresh = start.task.run(start.network(seeds), job)
        seconds = known.get("seconds", 0.0) + time.monotonic() - began
        known = _store(recorder, config, known, fresh, env, seconds)
        if sink:
            sink.summarise(known)
    return known


def _require_same_data(folder: Path, known: dict[str, Any], checksum: str | None) -> None:
    """Refuses to add seeds to a result on other data; the run id does not depend on the data."""
    for seed, env in _environments(known).items():
        if checksum and env.get("data") not in (None, checksum):
            raise InputError(
                f"data: seed {seed} in {folder / 'result.json'} was run on other data (checksum "
                f"{env['data']}, now {checksum}); restore the data, or remove this folder to run "
                "all seeds on the new ones"
            )


def _tell_of_other_code(folder: Path, known: dict[str, Any], code: str | None) -> None:
    """Warns if a result was made by other code of the user's parts; the id does not show it."""
    before = {env.get("code") for env in _environments(known).values()} - {None}
    if code and before - {code}:
        warnings.warn(
            f"{folder}: your own code has changed since this result; remove the folder to run it "
            "again",
            stacklevel=2,
        )


def _environments(known: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the environment of each seed; earlier versions stored one for all seeds."""
    return known.get("envs") or dict.fromkeys(known.get("seeds", {}), known.get("env", {}))


@contextlib.contextmanager
def _leaving_errors(folder: Path) -> Iterator[None]:
    """Context that writes the traceback of an error to ``error.txt`` and raises the error."""
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):  # the error may be a full disk
            (folder / "error.txt").write_text(traceback.format_exc(), "utf-8", "backslashreplace")
        raise


@contextlib.contextmanager
def _sink(folder: Path, config: DictConfig) -> Iterator[Any]:
    """Context with the sink of the config, such as W&B, which also gets the log lines; or None."""
    writes = config.logger and distributed.rank() == 0
    create = partial(build(config.logger), folder=folder, config=config) if writes else None
    sink = Background(create, folder) if create else None
    try:
        yield sink
    finally:
        if sink:
            sink.close()


def finished(config: DictConfig) -> bool:
    """Whether the store has a result for every seed of a config."""
    return not missing_seeds(config, known_result(config))


def known_result(config: DictConfig) -> dict[str, Any]:
    """Returns the stored result of a config's run; empty if there is none.

    Raises:
        InputError: ``result.json`` belongs to another run, or is not a result.
    """
    folder = run_folder(config)
    result = read_result(folder) or {}
    expected = {"id": folder.name.split("-")[-1], "name": folder.name, "seconds": "a number"}
    right = {key: result.get(key) == value for key, value in expected.items()}
    right["seconds"] = isinstance(result.get("seconds"), (int, float))
    for key in (key for key, good in right.items() if result and not good):
        raise InputError(
            f"{folder / 'result.json'}: {key}: expected {expected[key]}, got {result.get(key)!r}; "
            "restore the file, or remove it and run the command again"
        )
    return result


def missing_seeds(config: DictConfig, result: dict[str, Any]) -> list[int]:
    """Returns the seeds of a config that are missing in a result."""
    return [seed for seed in config.seeds if str(seed) not in result.get("seeds", {})]


def run_folder(config: DictConfig) -> Path:
    """Returns the folder of a config's run."""
    return Path(config.paths.outputs) / run_name(config)


def _store(
    recorder: Recorder,
    config: DictConfig,
    known: dict,
    fresh: dict[int, Result],
    env: dict,
    seconds: float,
) -> dict[str, Any]:
    seeds = known.get("seeds", {}) | {str(seed): result for seed, result in fresh.items()}
    envs = _environments(known) | dict.fromkeys(map(str, fresh), env)
    folder = recorder.folder
    result = {
        "id": run_id(config),
        "name": folder.name,
        "config": OmegaConf.to_container(config, resolve=False),
        "seeds": dict(sorted(seeds.items(), key=lambda item: int(item[0]))),
        "env": shared_environment(list(envs.values())),
        "envs": envs,  # of every seed
        "seconds": round(seconds, 2),
        "logged_bytes": recorder.logged(),
    }
    if distributed.rank() == 0:
        write_result(folder, result)
        checkpoints.remove_of(folder, [int(seed) for seed in seeds])
        (folder / "error.txt").unlink(missing_ok=True)
    return result


def _write_config(folder: Path, config: DictConfig) -> None:
    if distributed.rank() == 0:
        write_text(folder / "config.yaml", OmegaConf.to_yaml(config), OUTPUTS)
