"""Copies the logs of a run to Weights & Biases, or into a table of CSV."""

import csv
import io
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.files import OUTPUTS, write_text
from oversmoothing.lab.store.identity import run_id, short_name
from oversmoothing.lab.store.results import read_result

AXES = ("epoch", "step", "layer")
TRAINING = ("loss_", "lr", "examples_per_second")  # beginnings of names without their part


class WandbSink:
    """Sends log lines, pictures and results to W&B: one W&B run per seed, grouped by the run.

    A seed that continues later goes on under the same id. Offline, every attempt leaves a folder
    of its own, and ``wandb sync`` sends them one after another.

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
        self.folder, self.config, self.project, self.mode = folder, config, project, mode
        self.runs: dict[int, Any] = {}
        self.axes: dict[int, str] = {}
        self.failed = False
        done = (read_result(folder) or {}).get("seeds", {})
        for seed in [seed for seed in config.seeds if str(seed) not in done][:1]:
            self.runs[seed] = self._opened(seed)  # so that a refusal comes before the training

    def _opened(self, seed: int) -> Any:
        import wandb  # slow to import

        quiet = {"silent": True, "console": "off", "x_disable_stats": True}
        facts = facts_of(self.config)
        try:
            run = wandb.init(
                project=self.project,
                mode=self.mode,
                id=f"{run_id(self.config)}-seed{seed}",
                name=f"{self.folder.name} seed {seed}",
                group=self.folder.name,
                tags=[tag[:64] for tag in facts.values()],
                dir=str(self.folder),
                config={"seed": seed}
                | {f"run_{key}": value for key, value in facts.items()}
                | OmegaConf.to_container(self.config, resolve=False),
                resume="allow",
                settings=wandb.Settings(reinit="create_new", **quiet),  # another may be open
            )
        except (wandb.Error, OSError) as error:
            key, way_out = f"logger.project={self.project}", "choose another"
            if self.mode == "online":
                key, way_out = "logger.mode=online", "`wandb login`, or take mode=offline"
            reason = reason_of(error)
            raise InputError(
                f"{key}: W&B refused the run ({reason}); {way_out}, or logger=none"
            ) from error
        return run

    def _run(self, seed: int, line: dict[str, Any] | None = None) -> Any:
        """Returns the W&B run of a seed; the first log line sets the axis of its charts."""
        if seed not in self.runs:
            self.runs[seed] = self._opened(seed)
        axis = next((key for key in AXES if line and key in line), None)
        if axis and seed not in self.axes:
            self.axes[seed] = axis
            self.runs[seed].define_metric(axis)
            self.runs[seed].define_metric("*", step_metric=axis)
        return self.runs[seed]

    def __call__(self, line: dict[str, Any]) -> None:
        """Sends a log line."""
        for seed, values in by_seed(line).items():
            self._send(lambda s=seed, v=values: self._run(s, line).log(v))

    def picture(self, name: str, path: Path, seeds: list[int]) -> None:
        """Sends a picture of the run folder."""
        import wandb

        for seed in seeds:
            self._send(lambda s=seed: self._run(s).log({name: wandb.Image(str(path))}))

    def summarise(self, result: dict[str, Any]) -> None:
        """Puts the numbers of each seed of ``result.json`` into W&B's summary."""
        for seed, run in self.runs.items():
            own = result["seeds"].get(str(seed), {})
            self._send(lambda r=run, o=own: r.summary.update(final_numbers(o)))

    def close(self) -> None:
        """Ends the W&B runs."""
        for run in self.runs.values():
            self._send(lambda r=run: r.finish())

    def _send(self, send: Callable[[], object]) -> None:
        """Calls W&B until it has failed once, which is a warning: the run goes on without it."""
        try:
            if not self.failed:
                send()
        except Exception as error:  # W&B may raise any error
            self.failed = True
            warnings.warn(f"logger: {reason_of(error)}; the run goes on without W&B", stacklevel=3)


class CSVSink:
    """Writes ``metrics.csv`` into the run's folder when the run ends or stops.

    It has one row per seed and log line, the axis and the scalars as W&B gets them.

    Args:
        folder: run folder.
        config: not used.
    """

    def __init__(self, folder: Path, config: DictConfig) -> None:
        self.folder = folder

    def __call__(self, line: dict[str, Any]) -> None:
        """Does nothing: the lines are read from the logs, which also hold those of earlier runs."""

    def summarise(self, result: dict[str, Any]) -> None:
        """Does nothing: the results are in ``result.json``."""

    def close(self) -> None:
        """Writes the table."""
        rows = [*logged(self.folder)]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        table = io.StringIO()
        writer = csv.DictWriter(table, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(self.folder / "metrics.csv", table.getvalue(), OUTPUTS)


def logged(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the scalars of every log line and seed of a run."""
    for log in sorted(folder.glob("*/metrics.jsonl")):
        for line in map(json.loads, log.read_text("utf-8").splitlines()):
            for seed, values in by_seed(line).items():
                yield {"seed": seed, **values}


def facts_of(config: DictConfig) -> dict[str, str]:
    """Returns task, data, method and depth of a run in words."""
    data, depth = config.data or {}, (config.backbone or {}).get("depth")
    parts = [short_name(config[key]) for key in ("aggregator", "then")]
    method = "+".join(part for part in parts if part not in ("", "none")) or "none"
    facts = {"task": short_name(config.task), "data": data.get("name") or short_name(data)}
    facts |= {"method": method, "depth": f"{depth} layers" if depth else ""}
    return {key: value for key, value in facts.items() if value}


def by_seed(line: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """A log line -> the scalars of each seed.

    Example: {"seeds": [0, 3], "epoch": 20, "train_loss": [a, b]} ->
    {0: {"epoch": 20, "train/loss": a}, 3: {"epoch": 20, "train/loss": b}}.
    """
    seeds = line["seeds"]
    found: dict[int, dict[str, Any]] = {}
    for place, seed in enumerate(seeds):
        found[seed] = {}
        for name, value in line.items():
            if name != "seeds":
                one = isinstance(value, list) and len(value) == len(seeds)
                found[seed] |= scalars(grouped(name), value[place] if one else value)
    return found


def grouped(name: str) -> str:
    """``val_accuracy`` -> ``val/accuracy``, ``loss_cls`` -> ``train/loss_cls``."""
    for part in ("train_", "val_", "test_"):
        if name.startswith(part):
            return part.replace("_", "/") + name.removeprefix(part)
    return f"train/{name}" if name.startswith(TRAINING) else name


def scalars(name: str, value: Any) -> dict[str, Any]:
    """``layers``, {"mad": [a, b]} -> {"layers/mad/1": a, "layers/mad/2": b}."""
    if isinstance(value, dict):
        items = [*value.items()]
    elif isinstance(value, list):
        width = len(str(len(value)))
        items = [(f"{n:0{width}}", inner) for n, inner in enumerate(value, start=1)]
    else:
        return {name: value}
    return {k: v for key, inner in items for k, v in scalars(f"{name}/{key}", inner).items()}


def final_numbers(result: dict[str, Any]) -> dict[str, float]:
    """``result/<number>`` for each number of a seed's result."""
    numbers = {k: v for k, v in result.items() if isinstance(v, (int, float))}
    return {f"result/{name}": value for name, value in numbers.items()}
