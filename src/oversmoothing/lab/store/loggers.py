"""Loggers: they copy the log of a run to Weights & Biases or to TensorBoard.

A file of ``configs/logger`` names a logger's class and options. All loggers get the same scalars
under the same names, by seed (see ``by_seed``): ``train/loss``, ``val/accuracy``,
``layers/cosine/1``. Their axis is the epoch, the step or the layer.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from omegaconf import DictConfig, OmegaConf
from PIL import Image

from oversmoothing.errors import InputError, reason_of
from oversmoothing.lab.store.identity import facts_of, run_id
from oversmoothing.lab.store.results import read_result

AXES = ("epoch", "step", "layer")
TRAINING = ("loss_", "lr", "examples_per_second")  # beginnings of names without their part


class Logger:
    """Base class: a logger that does nothing.

    Attributes:
        package: that it needs besides those of the extra ``train``; an extra has the same name.
    """

    package: ClassVar[str | None] = None

    def __call__(self, line: dict[str, Any]) -> None:
        """Takes a log line of some seeds."""

    def picture(self, name: str, path: Path, seeds: list[int]) -> None:
        """Takes a picture of the run folder."""

    def summarise(self, result: dict[str, Any]) -> None:
        """Takes the content of ``result.json`` when some seeds have finished."""

    def close(self) -> None:
        """Ends the logging, after a success and after a failure."""


class WandbSink(Logger):
    """Sends log lines, pictures and results to W&B: one W&B run per seed, grouped by the run.

    A seed that continues later goes on under the same id. Offline, every attempt leaves a
    folder, and ``wandb sync`` sends them one after another.

    Args:
        folder: run folder; W&B's files go to ``<folder>/wandb``.
        config: composed config, shown in W&B.
        project: W&B project.
        entity: user or team that the project belongs to; None: W&B's default.
        mode: ``offline`` writes files for ``wandb sync``; ``online`` sends at once.

    Raises:
        InputError: W&B refuses the run, for example because nobody is logged in.
    """

    def __init__(
        self,
        folder: Path,
        config: DictConfig,
        project: str = "oversmoothing",
        entity: str | None = None,
        mode: Literal["offline", "online"] = "offline",
    ) -> None:
        self.folder, self.config, self.mode = folder, config, mode
        self.project, self.entity = project, entity
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
                entity=self.entity,
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
        axis = axis_of(line or {})
        if axis and seed not in self.axes:
            self.axes[seed] = axis
            self.runs[seed].define_metric(axis)
            self.runs[seed].define_metric("*", step_metric=axis)
        return self.runs[seed]

    def __call__(self, line: dict[str, Any]) -> None:
        for seed, values in by_seed(line).items():
            self._send(lambda s=seed, v=values: self._run(s, line).log(v))

    def picture(self, name: str, path: Path, seeds: list[int]) -> None:
        import wandb

        for seed in seeds:
            self._send(lambda s=seed: self._run(s).log({name: wandb.Image(str(path))}))

    def summarise(self, result: dict[str, Any]) -> None:
        for seed, run in self.runs.items():
            own = result["seeds"].get(str(seed), {})
            self._send(lambda r=run, o=own: r.summary.update(final_numbers(o)))

    def close(self) -> None:
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


class TensorBoardSink(Logger):
    """Writes event files for TensorBoard: a run of TensorBoard for every seed.

    ``tensorboard --logdir outputs`` shows them as ``<run>/tensorboard/seed0``. The tab HPARAMS
    compares the results by task, data, method and depth. A seed that continues later replaces what
    it logged after its last checkpoint.

    Args:
        folder: run folder; the files go to ``<folder>/tensorboard``.
        config: composed config.
    """

    package = "tensorboard"

    def __init__(self, folder: Path, config: DictConfig) -> None:
        self.folder, self.config = folder, config
        self.writers: dict[int, Any] = {}

    def _writer(self, seed: int, step: int | None = None) -> Any:
        """Returns the writer of a seed; the first step hides what was written from there on."""
        from torch.utils.tensorboard import SummaryWriter  # slow to import

        if seed not in self.writers:
            own = self.folder / "tensorboard" / f"seed{seed}"
            self.writers[seed] = SummaryWriter(str(own), purge_step=step)
        return self.writers[seed]

    def __call__(self, line: dict[str, Any]) -> None:
        for seed, values in by_seed(line).items():
            step = values.pop(axis_of(line), None)
            for name, value in values.items():
                self._writer(seed, step).add_scalar(name, value, step)

    def picture(self, name: str, path: Path, seeds: list[int]) -> None:
        with Image.open(path) as file:
            pixels = np.asarray(file.convert("RGB"))
        for seed in seeds:
            self._writer(seed).add_image(name, pixels, dataformats="HWC")

    def summarise(self, result: dict[str, Any]) -> None:
        facts = facts_of(self.config)
        for seed, writer in self.writers.items():
            numbers = final_numbers(result["seeds"].get(str(seed), {}))
            writer.add_hparams({"seed": seed, **facts}, numbers, run_name=".")
        self.close()

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        self.writers = {}


def axis_of(line: dict[str, Any]) -> str:
    """Returns the key of a log line that is the axis of charts; empty if it has none."""
    return next((key for key in AXES if key in line), "")


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
    """``layers``, {"mad": [a, b]} -> {"layers/mad/1": a, "layers/mad/2": b}; leaves None out."""
    if isinstance(value, dict):
        items = [*value.items()]
    elif isinstance(value, list):
        width = len(str(len(value)))
        items = [(f"{n:0{width}}", inner) for n, inner in enumerate(value, start=1)]
    else:
        return {} if value is None else {name: value}
    return {k: v for key, inner in items for k, v in scalars(f"{name}/{key}", inner).items()}


def final_numbers(result: dict[str, Any]) -> dict[str, float]:
    """``result/<number>`` for each number of a seed's result."""
    numbers = {k: v for k, v in result.items() if isinstance(v, (int, float))}
    return {f"result/{name}": value for name, value in numbers.items()}
