"""Copies the log of a run to Weights & Biases."""

import json
import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.identity import run_id


class WandbSink:
    """Sends log lines to W&B under the id of the run. The step of a row is its line number.

    The rows are read from ``metrics.jsonl``. W&B cannot merge the segments of an interrupted
    offline run. So the first log line sends the whole file, which a resumed run has truncated to
    its checkpoint by then, and the newest segment always contains the whole run. Online, rows that
    W&B already has are not sent again.

    Args:
        folder: run folder; W&B's files go to ``<folder>/wandb``.
        config: composed config, shown in W&B.
        project: W&B project.
        mode: ``offline`` writes files for ``wandb sync``; ``online`` sends at once.
        seconds: how long W&B may take to begin a run, and to end it.

    Raises:
        InputError: W&B refuses the run, for example because nobody is logged in.
    """

    def __init__(
        self,
        folder: Path,
        config: DictConfig,
        project: str = "oversmoothing",
        mode: Literal["offline", "online"] = "offline",
        seconds: float = 20.0,
    ) -> None:
        import wandb  # slow to import

        os.environ.setdefault("HOME", _home())  # W&B prints many lines where it is not set
        self._path = folder / "metrics.jsonl"
        self._sent = 0  # bytes of the file
        self._rows = 0
        try:
            self.run = wandb.init(
                project=project,
                mode=mode,
                id=run_id(config),
                name=folder.name,
                dir=str(folder),
                config=OmegaConf.to_container(config, resolve=False),
                resume="allow" if mode == "online" else None,
                settings=_settings(seconds),
            )
        except wandb.Error as error:
            key, way_out = f"logger.project={project}", "choose another"
            if mode == "online":
                key, way_out = "logger.mode=online", "`wandb login`, or take mode=offline"
            raise InputError(
                f"{key}: W&B refused the run ({reason_of(error)}); {way_out}"
            ) from error

    def __call__(self, line: dict[str, Any]) -> None:
        """Sends all new lines of ``metrics.jsonl``, which include the given one."""
        self._send_new()

    def picture(self, name: str, path: Path) -> None:
        """Sends a picture of the run folder."""
        import wandb

        self._send_new()
        step = max(self._rows - 1, self.run.starting_step)  # of the last row
        self.run.log({name: wandb.Image(str(path))}, step=step)

    def summarise(self, result: dict[str, Any]) -> None:
        """Puts the content of ``result.json`` into W&B's summary."""
        self.run.summary.update(final_numbers(result))

    def close(self) -> None:
        """Ends the W&B run."""
        self._send_new()
        self.run.finish()

    def _send_new(self) -> None:
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._sent)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):  # it is being written
                return
            if self._rows >= self.run.starting_step:
                self.run.log(flatten(json.loads(line)), step=self._rows)
            self._rows, self._sent = self._rows + 1, self._sent + len(line)


def _settings(seconds: float) -> Any:
    import wandb

    wanted = {"init_timeout": seconds, "finish_timeout": seconds, "finish_timeout_raises": True}
    wanted |= {"reinit": "create_new"}  # another run may still be open
    known = {key: value for key, value in wanted.items() if key in wandb.Settings.model_fields}
    return wandb.Settings(silent=True, console="off", x_disable_stats=True, **known)


def _home() -> str:
    """Returns a folder for the caches of W&B if the environment does not set HOME."""
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else tempfile.gettempdir()


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


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Reads the lines of ``metrics.jsonl``; an empty list if the file is missing.

    Raises:
        InputError: a line is damaged; the message names it.
    """
    lines = []
    for number, text in enumerate(path.read_bytes().splitlines() if path.exists() else [], 1):
        try:
            lines.append(json.loads(text))
            flatten(lines[-1])
        except (ValueError, LookupError, TypeError, AttributeError):
            raise InputError(
                f"{path}: line {number} is not a log line; remove the folder and run its command "
                "again"
            ) from None
    return lines
