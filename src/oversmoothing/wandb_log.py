"""Weights & Biases as a copy of a run's JSON lines."""

import json
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from oversmoothing.identity import run_id


class WandbSink:
    """Sends log lines to W&B under the run's own id.

    Segments of an interrupted offline run cannot be merged, so a sink first replays what
    ``metrics.jsonl`` holds: the newest segment is always the whole run.

    Args:
        folder: run folder; W&B's files go to ``<folder>/wandb``.
        config: composed config, shown in W&B.
        project: W&B project.
        mode: ``offline`` writes files for ``wandb sync``; ``online`` sends at once.
    """

    def __init__(
        self,
        folder: Path,
        config: DictConfig,
        project: str = "oversmoothing",
        mode: Literal["offline", "online"] = "offline",
    ) -> None:
        import wandb  # a second to import; only when it is used

        self.run = wandb.init(
            project=project,
            mode=mode,
            id=run_id(config),
            name=folder.name,
            dir=str(folder),
            config=OmegaConf.to_container(config, resolve=False),
            resume="allow" if mode == "online" else None,
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
        )
        if mode == "offline" and (folder / "metrics.jsonl").exists():
            for line in (folder / "metrics.jsonl").read_text().splitlines():
                self(json.loads(line))

    def __call__(self, line: dict[str, Any]) -> None:
        """One log line; a list of one value a seed becomes ``name/seed<k>``."""
        self.run.log(flatten(line))

    def close(self) -> None:
        """Ends the W&B run."""
        self.run.finish()


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
