"""From a composed config to a result in the store."""

import contextlib
import inspect
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from oversmoothing import distributed
from oversmoothing.errors import InputError
from oversmoothing.store import checkpoints
from oversmoothing.store.claims import claimed
from oversmoothing.store.environment import device, environment
from oversmoothing.store.files import write_text
from oversmoothing.store.identity import run_id, run_name
from oversmoothing.store.recorder import Recorder, read_result, write_result


def execute(config: DictConfig, wait: bool = False) -> dict[str, Any]:
    """Runs what a config asks for and its store lacks; a finished run costs nothing.

    Seeds do not take part in a run's identity: asking for more seeds trains only the new ones.

    Args:
        config: composed and checked.
        wait: wait for another process that is at this run.

    Returns:
        The content of ``result.json``.

    Raises:
        Busy: another process is at this run.
        InputError: bad input; anything else a task raises is left in ``error.txt`` too.
    """
    folder, chosen = run_folder(config), device(config.device)
    with distributed.group(chosen), claimed(folder, wait):
        known = read_result(folder) or {}
        missing = _missing(config, known)
        if not missing:
            return known
        data = build(config.data) if config.data else None
        _describe(folder, config)
        env = {**environment(config.device), "data": getattr(data, "checksum", None)}
        with _sink(folder, config) as sink:
            for seeds in _groups(config, missing):
                started = time.monotonic()
                fresh = _run_task(folder, config, data, seeds, known.get("logged_bytes", 0), sink)
                seconds = known.get("seconds", 0.0) + time.monotonic() - started
                known = _store(folder, config, known, fresh, env, seconds)
        return known


def _groups(config: DictConfig, seeds: list[int]) -> list[list[int]]:
    """Seeds that a task trains together; one after the other where its module says so."""
    module = inspect.getmodule(get_object(config.task._target_))
    alone = getattr(module, "ONE_SEED_AT_A_TIME", False)
    return [[seed] for seed in seeds] if alone else [seeds]


@contextlib.contextmanager
def _sink(folder: Path, config: DictConfig) -> Iterator[Any]:
    """What is told of log lines, besides the run's own file."""
    writes = config.logger and distributed.rank() == 0
    sink = build(config.logger)(folder=folder, config=config) if writes else None
    try:
        yield sink
    finally:
        if sink:
            sink.close()


def finished(config: DictConfig) -> bool:
    """Whether the store has a result for every seed of a config."""
    return not _missing(config, read_result(run_folder(config)) or {})


def _missing(config: DictConfig, result: dict[str, Any]) -> list[int]:
    return [seed for seed in config.seeds if str(seed) not in result.get("seeds", {})]


def run_folder(config: DictConfig) -> Path:
    """Where the run of a config lives."""
    return Path(config.paths.outputs) / run_name(config)


def _run_task(
    folder: Path, config: DictConfig, data: Any, seeds: list[int], logged: int, sink: Any
) -> dict[int, dict]:
    _set_up(config)
    arguments = {
        **parts(config),
        "seeds": seeds,
        "run": Recorder(folder, seeds, config.checkpoint_seconds, logged, sink),
        "device": device(config.device),
    }
    if data is not None:
        arguments["data"] = data
    try:
        return build(config.task, _partial_=True)(**arguments)
    except Exception:
        with contextlib.suppress(OSError):  # a full disk is what may be reported here
            (folder / "error.txt").write_text(traceback.format_exc())
        raise


def parts(config: DictConfig) -> dict[str, Any]:
    """What a task is made of, data aside: backbone, aggregators, trainer."""
    built = {key: build(config[key]) for key in ("backbone", "trainer") if config[key]}
    built["aggregators"] = [build(config[key]) for key in ("aggregator", "then")]
    return built


def build(node: DictConfig, **arguments: Any) -> Any:
    """What a config node's ``_target_`` makes, without Hydra's wrapping of its errors."""
    try:
        return instantiate(node, _convert_="all", **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from None
        raise


def _store(
    folder: Path, config: DictConfig, known: dict, fresh: dict[int, dict], env: dict, seconds: float
) -> dict[str, Any]:
    seeds = known.get("seeds", {}) | {str(seed): result for seed, result in fresh.items()}
    metrics = folder / "metrics.jsonl"
    result = {
        "id": run_id(config),
        "name": folder.name,
        "config": OmegaConf.to_container(config, resolve=False),
        "seeds": dict(sorted(seeds.items(), key=lambda item: int(item[0]))),
        "env": env,
        "seconds": round(seconds, 2),
        "logged_bytes": metrics.stat().st_size if metrics.exists() else 0,
    }
    if distributed.rank() == 0:
        write_result(folder, result)
        checkpoints.remove(folder)
        (folder / "error.txt").unlink(missing_ok=True)
    return result


def _describe(folder: Path, config: DictConfig) -> None:
    if distributed.rank() > 0:
        return
    text = OmegaConf.to_yaml(config)
    write_text(folder / "config.yaml", text)


def _set_up(config: DictConfig) -> None:
    """Threads and determinism: how, never what, is computed."""
    if config.threads:
        torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(
        config.deterministic != "off", warn_only=config.deterministic == "warn"
    )
