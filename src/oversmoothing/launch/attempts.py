"""Runs of a command one by one: each may fail, wait for another process, or be done already."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from oversmoothing.errors import InputError
from oversmoothing.store.summary import summary

if TYPE_CHECKING:
    from oversmoothing.launch.start import Start

busy: list[DictConfig] = []  # what another process is at, for later


def complain(*lines: str) -> None:
    """Under torchrun all processes find the same mistakes; the first one says them."""
    if os.environ.get("RANK", "0") == "0":
        print(*(f"error: {line}" for line in lines), sep="\n", file=sys.stderr)


def attempt(config: DictConfig, wait: bool = False, start: "Start | None" = None) -> None:
    """One run; a failure is reported and ends no sweep. ``start`` as ``execute`` takes it."""
    from oversmoothing.launch.execute import execute, finished, run_folder  # torch takes a second
    from oversmoothing.store.claims import Busy

    name, already = run_folder(config).name, finished(config)
    try:
        print(summary(execute(config, wait, start), already), flush=True)
    except Busy as other:
        print(f"{other}: left for later", flush=True)
        busy.append(config)
    except InputError as error:  # of this process alone, perhaps: a file that only it reads
        print(f"error: {name}: {error}", file=sys.stderr)
    except Exception as error:
        traceback.print_exc()
        print(f"error: {name}: {type(error).__name__}, see above", file=sys.stderr)


def unfinished(configs: Sequence[DictConfig]) -> int:
    """How many runs have no result, which is also said."""
    from oversmoothing.launch.execute import finished

    missing = sum(not finished(config) for config in configs)
    if missing:
        complain(f"{missing} of {len(configs)} runs have no result")
    return missing
