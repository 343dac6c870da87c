"""Describes the environment of a computation: device, versions, commit, the user's own code."""

import functools
import hashlib
import os
import platform
import re
import subprocess
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oversmoothing import __version__, distributed
from oversmoothing.errors import InputError
from oversmoothing.lab.processes import local_rank
from oversmoothing.lab.store.files import CHECKOUT

if TYPE_CHECKING:
    from omegaconf import DictConfig

NO_MPS = "torch has neither float64 nor sparse products there"
CODE = ("src", "configs", "train.py", "pyproject.toml")  # paths that can change results


def device(name: str) -> torch.device:
    """Returns the torch device of a name; ``auto`` is the GPU if there is one.

    Raises:
        InputError: the device is unknown or not available.
    """
    if name == "auto":
        if torch.backends.mps.is_available():
            _tell_of_mps()
        return _own(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    chosen = named_device(name)
    if chosen.type == "mps":
        raise InputError(f"device: MPS is not supported, since {NO_MPS}; use device=cpu or auto")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device: torch sees no GPU for {name!r}; use device=cpu or auto")
    return _own(chosen)


def named_device(name: str) -> torch.device:
    """Returns the device of a name, which this machine may lack; for ``auto`` the CPU."""
    try:
        return torch.device("cpu" if name == "auto" else name)
    except RuntimeError:
        raise InputError(f"device: expected auto, cpu, cuda or cuda:1, got {name!r}") from None


@functools.cache
def _tell_of_mps() -> None:
    """Warns once that a Mac's GPU is not used."""
    warnings.warn(f"device=auto: runs on the CPU, not on MPS, since {NO_MPS}", stacklevel=3)


def _own(chosen: torch.device) -> torch.device:
    """Returns the GPU of this process; a numbered one becomes current, for graphs and Triton."""
    if chosen.type != "cuda":
        return chosen
    if distributed.world() > 1:
        chosen = torch.device("cuda", local_rank())
    if chosen.index is not None:
        if chosen.index >= (count := torch.cuda.device_count()):
            raise InputError(f"device: torch sees no {chosen}, only GPUs 0 to {count - 1}")
        torch.cuda.set_device(chosen)
    return chosen


def environment(name: str) -> dict[str, Any]:
    """Returns all properties besides the config that results can depend on.

    Args:
        name: of the device, as in a config.
    """
    chosen = device(name)
    gpu = torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else None
    return {
        "git": _git("rev-parse", "--short=12", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no", "--", *CODE)),
        "version": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": gpu or chosen.type,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),  # deep networks depend on it
    }


def shared_environment(environments: list[dict[str, Any]]) -> dict[str, Any]:
    """Merges the environments of seeds; different values are joined, as in ``cpu / H200``."""
    distinct = [env for n, env in enumerate(environments) if env not in environments[:n]]
    keys = dict.fromkeys([key for env in distinct for key in env])
    values = {key: list(dict.fromkeys([env.get(key) for env in distinct])) for key in keys}
    return {
        key: each[0] if len(each) == 1 else " / ".join(map(str, each))
        for key, each in values.items()
    }


def _git(*words: str) -> str | None:
    if CHECKOUT is None:  # a wheel may lie inside another repository
        return None
    try:
        done = subprocess.run(
            ["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
    except OSError:  # there is no git
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def own_code(config: "DictConfig") -> str | None:
    """Returns a hash of the files that define a config's parts of no installed package.

    The id of a run does not contain the code of the user's own parts.
    """
    from omegaconf import OmegaConf  # diagnose works without it

    targets = sorted(set(re.findall(r"_target_: (\S+)", OmegaConf.to_yaml(config))))
    files = dict.fromkeys(filter(None, map(_own_file, targets)))
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()[:10] if files else None


def _own_file(target: str) -> Path | None:
    """Returns the file that defines a class; None if it belongs to this or an installed package."""
    module = target.rpartition(".")[0]
    if target.split(".")[0] == "oversmoothing":
        return None
    try:
        spec = find_spec(module) if module else None
    except (ImportError, ValueError):
        return None
    file = Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return file if file and not {"site-packages", "dist-packages"} & {*file.parts} else None
