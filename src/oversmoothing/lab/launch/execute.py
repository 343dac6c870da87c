"""Builds the parts of a composed config, runs it, and stores its result."""

import contextlib
import ctypes
import os
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from oversmoothing import distributed
from oversmoothing.errors import InputError
from oversmoothing.lab.arguments import build
from oversmoothing.lab.processes import group
from oversmoothing.lab.store.environment import device, environment, own_code, shared_environment
from oversmoothing.lab.store.files import OUTPUTS, write_text
from oversmoothing.lab.store.identity import run_name
from oversmoothing.lab.store.results import read_result, write_result
from oversmoothing.lab.store.run import Recorder, locked
from oversmoothing.lab.tasks.base import Job, Parts, Result, Task

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


class Start:
    """The task and parts of a config; each is built once.

    Args:
        config: composed, with checked names and types.

    Raises:
        InputError: a part refuses its arguments, or data are missing or damaged.
    """

    def __init__(self, config: DictConfig) -> None:
        self.device = device(config.device)
        _set_up(config, self.device)
        self.task: Task = build(config.task)
        data = build(config.data) if config.data else None
        self.parts = parts(config, data)

    def groups(self, seeds: list[int]) -> list[list[int]]:
        """Divides seeds into the groups that the task trains together."""
        return [seeds] if self.task.seeds_together else [[seed] for seed in seeds]

    def network(self, seeds: list[int]) -> nn.Module:
        """Returns the checked network of these seeds.

        Raises:
            InputError: parts or options do not fit each other.
        """
        network = self.task.network(self.parts, seeds, self.device)
        self.task.check(network, self.parts)
        return network


def parts(config: DictConfig, data: object = None) -> Parts:
    """Builds the backbone, aggregators and trainer of a config, for these data."""
    aggregators = [build(config[key]) for key in ("aggregator", "then")]
    own = [build(config[key]) if config[key] else None for key in ("backbone", "trainer")]
    return Parts(aggregators, *own, data)


def _set_up(config: DictConfig, place: torch.device) -> None:
    """Sets threads, precision of matrix products and determinism."""
    if config.threads:
        torch.set_num_threads(config.threads)
    if place.type == "cpu":
        keep_freed_memory()
    matmul = config.matmul
    if place.type != "cuda" and matmul != "medium":
        matmul = "highest"
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = matmul != "highest"
    wanted = config.deterministic != "off"
    if wanted:  # required for deterministic matrix products on a GPU
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if wanted or torch.are_deterministic_algorithms_enabled():  # the setter imports the compiler
        torch.use_deterministic_algorithms(wanted, warn_only=config.deterministic == "warn")


def keep_freed_memory() -> None:
    """Lets glibc keep freed memory; it would map and clear anew whatever is above 32 MB."""
    with contextlib.suppress(AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def obtain(config: DictConfig, wait: bool = False) -> tuple[dict[str, Any], bool]:
    """Runs the seeds of a config that have no result in the store.

    Seeds are not part of a run's identity, so asking for more seeds trains only the new ones.

    Args:
        config: composed and checked.
        wait: wait if another process works on this run.

    Returns:
        The content of ``result.json``, and whether no seed had to be run. That is also true if
        another process finished the run in the meantime.

    Raises:
        Busy: another process works on this run.
        InputError: bad input. The traceback of any error is left in ``error.txt``.
    """
    folder, first = run_folder(config), distributed.rank() == 0
    with group(device(config.device)):
        known = distributed.from_first(result_in(folder) if first else None)
        code = own_code(config)
        if first:
            _tell_of_other_code(folder, known, code)
        if not missing_seeds(config, known):
            return known, True  # the folder may be one that cannot be written
        with locked(folder, wait):
            return _run_missing(config, code)


def _run_missing(config: DictConfig, code: str | None) -> tuple[dict[str, Any], bool]:
    """Runs the seeds that have no result by now; see ``obtain``."""
    folder, first = run_folder(config), distributed.rank() == 0
    known = distributed.from_first(result_in(folder) if first else None)
    if not (missing := missing_seeds(config, known)):
        return known, True
    if first:
        write_text(folder / "config.yaml", OmegaConf.to_yaml(config), OUTPUTS)
    with _leaving_errors(folder), _sink(folder, config) as sink:
        start = Start(config)
        env = environment(config.device)
        env |= {"data": getattr(start.parts.data, "checksum", None)}
        env |= {"code": code} if code else {}
        _require_same_data(folder, known, env["data"])
        for seeds in start.groups(missing):
            own = (sink, config.diagnose_every, env["data"])
            recorder = Recorder(folder, seeds, config.checkpoint_seconds, *own)
            known = _with_seeds(known, config, start, recorder, env)
            if sink:
                sink.summarise(known)
    return known, False


def _with_seeds(
    known: dict[str, Any], config: DictConfig, start: Start, recorder: Recorder, env: dict[str, Any]
) -> dict[str, Any]:
    """Runs the seeds of a recorder; returns and stores the known result with theirs."""
    began, folder = time.monotonic(), recorder.folder
    job = Job(start.parts, recorder.seeds, recorder, start.device)
    fresh: dict[int, Result] = start.task.run(start.network(recorder.seeds), job)
    seeds = known.get("seeds", {}) | {str(seed): result for seed, result in fresh.items()}
    envs = known.get("envs", {}) | dict.fromkeys(map(str, fresh), env)
    result = {
        "id": _id(folder),
        "name": folder.name,
        "config": OmegaConf.to_container(config, resolve=False),
        "seeds": dict(sorted(seeds.items(), key=lambda item: int(item[0]))),
        "chance": known.get("chance", {}) | _chance(start, fresh),
        "env": shared_environment(list(envs.values())),
        "envs": envs,  # of every seed
        "seconds": round(known.get("seconds", 0.0) + time.monotonic() - began, 2),
    }
    if distributed.rank() == 0:
        write_result(folder, result)
        recorder.end()
        (folder / "error.txt").unlink(missing_ok=True)
    return result


def _chance(start: Start, seeds: Iterable[int]) -> dict[str, dict[str, float]]:
    """Returns the chance level of every seed's metrics; empty for a task without one."""
    levels = {str(seed): start.task.chance(start.parts, seed) for seed in seeds}
    return {seed: level for seed, level in levels.items() if level}


def execute(config: DictConfig) -> dict[str, Any]:
    """Runs a config like ``obtain``, and returns only the result."""
    return obtain(config)[0]


def _require_same_data(folder: Path, known: dict[str, Any], checksum: str | None) -> None:
    """Refuses to add seeds to a result on other data; the run id does not depend on the data."""
    for seed, env in known.get("envs", {}).items():
        if checksum and env.get("data") not in (None, checksum):
            raise InputError(
                f"data: seed {seed} in {folder / 'result.json'} was run on other data (checksum "
                f"{env['data']}, now {checksum}); restore the data, or remove this folder to run "
                "all seeds on the new ones"
            )


def _tell_of_other_code(folder: Path, known: dict[str, Any], code: str | None) -> None:
    """Warns if a result was made by other code of the user's parts; the id does not show it."""
    before = {env.get("code") for env in known.get("envs", {}).values()} - {None}
    if code and before - {code}:
        warnings.warn(
            f"{folder}: your own code has changed since this result; remove the folder to run it "
            "again",
            stacklevel=2,
        )


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
    if not config.logger or distributed.rank() > 0:
        yield None
        return
    sink = build(config.logger)(folder=folder, config=config)
    try:
        yield sink
    finally:
        sink.close()


def finished(config: DictConfig) -> bool:
    """Whether the store has a result for every seed of a config."""
    return not missing_seeds(config, known_result(config))


def missing_seeds(config: DictConfig, result: dict[str, Any]) -> list[int]:
    """Returns the seeds of a config that are missing in a result."""
    return [seed for seed in config.seeds if str(seed) not in result.get("seeds", {})]


def known_result(config: DictConfig) -> dict[str, Any]:
    """Returns the stored result of a config's run; see ``result_in``."""
    return result_in(run_folder(config))


def result_in(folder: Path) -> dict[str, Any]:
    """Returns the stored result of a run's folder; empty if there is none.

    Raises:
        InputError: ``result.json`` belongs to another run.
    """
    result = read_result(folder) or {}
    if result and result.get("id") != _id(folder):
        raise InputError(
            f"{folder / 'result.json'}: id: expected {_id(folder)}, got {result.get('id')!r}; "
            "restore the file, or remove it and run the command again"
        )
    return result


def run_folder(config: DictConfig) -> Path:
    """Returns the folder of a config's run."""
    return Path(config.paths.outputs) / run_name(config)


def _id(folder: Path) -> str:
    """Returns the id of a run, which ends the name of its folder."""
    return folder.name.split("-")[-1]
