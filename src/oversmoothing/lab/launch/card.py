"""The model card of an exported run, as the Hugging Face hub shows it."""

from typing import Any

from oversmoothing import __version__
from oversmoothing.lab.launch.loading import TrainedRun
from oversmoothing.lab.launch.retrace import command_of
from oversmoothing.lab.store.identity import short_name
from oversmoothing.lab.store.lookup import config_of

TASKS = {"wsss": "weakly supervised segmentation", "segmentation": "supervised segmentation"}
CARD = """---
library_name: oversmoothing
pipeline_tag: image-segmentation
tags: [{tags}]
---

# {name}

A network for {task}, trained and measured with `oversmoothing`.

| | |
|---|---|
{facts}

## Results

{numbers}

## How to load it

In a clone of the repository, with `FOLDER` the folder of this file, or `hf:ORG/NAME` on the hub:

```sh
{commands}
```

```python
from oversmoothing.lab.launch import loading

run = loading.load("FOLDER", tasks=["{kind}"])
run.network  # in evaluation mode
run.label_names
```

## How it was made

{made}

`config.yaml` has every setting and `metrics.json` every number.
"""


def card(run: TrainedRun, metrics: dict[str, Any]) -> str:
    """Returns the text of ``README.md``.

    Args:
        run: trained.
        metrics: as ``result.json``, of the run's seed.
    """
    config, kind = run.config, run.task_name
    name = str(config.data.get("name") or short_name(config.data))
    method = short_name(config.aggregator)
    tags = ["oversmoothing", kind, name, *([method] if method != "none" else [])]
    result = metrics["seeds"].get(str(run.seed), {})
    command = command_of(config_of(run.folder, (kind,), trust=True), run.seed)
    commands = ["python scripts/predict.py IMAGE --run FOLDER"]
    if kind == "wsss":
        commands.append("python scripts/evaluate.py --run FOLDER")
    return CARD.format(
        tags=", ".join(tags),
        name=metrics.get("name", run.folder.name),
        task=TASKS[kind],
        facts="\n".join(f"| {key} | {value} |" for key, value in _facts(run, name, metrics)),
        numbers=_numbers(result),
        commands="\n".join(commands),
        kind=kind,
        made=f"```sh\n{command}\n```" if command else "By a config that no short command gives.",
    )


def _facts(run: TrainedRun, data: str, metrics: dict[str, Any]) -> list[tuple[str, str]]:
    method = run.config.aggregator
    options = ", ".join(f"{k} = {v}" for k, v in method.items() if not str(k).startswith("_"))
    start = metrics["seeds"].get(str(run.seed), {}).get("weights", "unknown")
    env = metrics.get("env", {})
    versions = [f"{key} {env[key]}" for key in ("python", "torch", "device") if env.get(key)]
    commit = f", commit {env['git']}" if env.get("git") else ""
    changed = " with uncommitted changes" if env.get("dirty") else ""
    return [
        ("Data", data),
        ("Labels", ", ".join(run.label_names)),
        ("Backbone", f"{run.config.backbone.get('name') or short_name(run.config.backbone)}"),
        ("Start", start),
        ("Aggregator", f"{short_name(method)}{f' ({options})' if options else ''}"),
        ("Seed", str(run.seed)),
        ("Versions", ", ".join([f"oversmoothing {__version__}", *versions]) + commit
         + changed),
    ]  # fmt: skip


def _numbers(result: dict[str, Any]) -> str:
    """Returns a table of mIoU by stage, or a sentence if nothing was measured."""
    rows = [
        f"| {split} | {stage} | {result[f'{split}_{stage}_miou']:.2f} | {how} |"
        for split, stages in result.get("conditions", {}).items()
        for stage, how in stages.items()
        if result.get(f"{split}_{stage}_miou") is not None
    ]
    if not rows:
        return "Nothing was measured."
    head = ["| split | stage | mIoU in % | how it was measured |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])
