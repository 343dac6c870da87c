"""Copies the log of a run to Weights & Biases."""

import math
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.identity import run_id


class WandbSink:
    """Sends log lines, pictures and results to W&B, under the id of the run.

    A run that continues later goes on under the same id. Offline, every attempt leaves a folder of
    its own, and ``wandb sync`` sends them one after another.

    Args:
        folder: run folder; W&B's files go to ``<folder>/wandb``.
        config: composed config, shown in W&B.
        project: W&B project.
        mode: ``offline`` writes files for ``wandb sync``; ``online`` sends at once.

    Raises:
        InputError: W&B refuses the run, for example because nobody is logged in.
    """

    def __init__(
        self,
        folder: Path,
        config: DictConfig,
        project: str = "oversmoothing",
        mode: Literal["offline", "online"] = "offline",
    ) -> None:
        import wandb  # slow to import

        quiet = {"silent": True, "console": "off", "x_disable_stats": True}
        try:
            self.run = wandb.init(
                project=project,
                mode=mode,
                id=run_id(config),
                name=folder.name,
                dir=str(folder),
                config=OmegaConf.to_container(config, resolve=False),
                resume="allow",
                settings=wandb.Settings(reinit="create_new", **quiet),  # another may be open
            )
        except (wandb.Error, OSError) as error:
            key, way_out = f"logger.project={project}", "choose another"
            if mode == "online":
                key, way_out = "logger.mode=online", "`wandb login`, or take mode=offline"
            reason = reason_of(error)
            raise InputError(
                f"{key}: W&B refused the run ({reason}); {way_out}, or logger=none"
            ) from error

    def __call__(self, line: dict[str, Any]) -> None:
        """Sends a log line."""
        self._send(lambda: self.run.log(flatten(line)))

    def picture(self, name: str, path: Path) -> None:
        """Sends a picture of the run folder."""
        import wandb

        self._send(lambda: self.run.log({name: wandb.Image(str(path))}))

    def summarise(self, result: dict[str, Any]) -> None:
        """Puts the content of ``result.json`` into W&B's summary."""
        self._send(lambda: self.run.summary.update(final_numbers(result)))

    def close(self) -> None:
        """Ends the W&B run."""
        self._send(lambda: self.run.finish())

    def _send(self, send: Callable[[], object]) -> None:
        """Calls W&B until it has failed once, which is a warning: the run goes on without it."""
        try:
            if self.run:
                send()
        except Exception as error:  # W&B may raise any error
            self.run = None
            warnings.warn(f"logger: {reason_of(error)}; the run goes on without W&B", stacklevel=3)


def flatten(line: dict[str, Any]) -> dict[str, Any]:
    """{"seeds": [0, 3], "loss": [a, b]} -> {"loss/seed0": a, "loss/seed3": b}."""
    seeds = line["seeds"]
    flat = {}
    for name, value in line.items():
        if name == "seeds":
            continue
        if isinstance(value, list) and len(value) == len(seeds):
            flat |= {f"{name}/seed{seed}": item for seed, item in zip(seeds, value)}
        else:
            flat[name] = value
    return flat


def final_numbers(result: dict[str, Any]) -> dict[str, float]:
    """``result/<number>/seed<k>``, and its mean and std (ddof = 1) over seeds."""
    values: dict[str, dict[str, float]] = {}
    for seed, numbers in result["seeds"].items():
        for name, value in numbers.items():
            if isinstance(value, (int, float)):
                values.setdefault(f"result/{name}", {})[f"seed{seed}"] = value
    flat = {f"{name}/{seed}": v for name, by_seed in values.items() for seed, v in by_seed.items()}
    for name, by_seed in values.items():
        mean = flat[f"{name}/mean"] = statistics.fmean(by_seed.values())
        if len(by_seed) > 1 and math.isfinite(mean):
            flat[f"{name}/std"] = statistics.stdev(by_seed.values())
    return flat
