"""Sends runs that are in the output folder to W&B, each under its own id.

    python scripts/wandb_replay.py outputs/nodes-* --mode online
    python scripts/wandb_replay.py outputs/nodes-cora-centered-layernorm-1b81c47de4 --project mine

Only reads the JSON files of a run: `metrics.jsonl` becomes the history, `result.json` the summary.
Online, what W&B has already is not sent again, so the command can be repeated.
Exit codes: 0 all sent, 2 some folder is missing or damaged (the others are sent nevertheless).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from oversmoothing.errors import InputError
from oversmoothing.store.identity import run_id
from oversmoothing.store.wandb_sink import WandbSink, final_numbers, read_lines


def main() -> int:
    options = arguments()
    failed = False
    for folder in dict.fromkeys(options.folders):
        try:
            print(replay(folder, options.project, options.mode), flush=True)
        except InputError as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
    return 2 if failed else 0


def replay(folder: Path, project: str, mode: str) -> str:
    """Sends one run and says so; nothing is sent of a folder that is damaged.

    Raises:
        InputError: the folder is missing or damaged, or W&B refuses the run.
    """
    config, result = read_config(folder), read_result(folder)
    rows = len(read_lines(folder / "metrics.jsonl"))
    if not rows and not result:
        raise InputError(f"{folder}: neither metrics.jsonl nor result.json; nothing was run here")
    sink = WandbSink(folder, config, project, mode)
    if result:
        sink.summarise(result)
    sink.close()
    told = f"{folder.name}: {rows} rows{', result' if result else ', no result yet'}"
    return told if mode == "online" else f"{told}; wandb sync {sink.run.settings.sync_dir}"


def read_config(folder: Path) -> DictConfig:
    """The composed config of a run.

    Raises:
        InputError: no run folder, or its config cannot be read.
    """
    path = folder / "config.yaml"
    if not path.is_file():
        raise InputError(f"{folder}: no run folder (it has no config.yaml); give outputs/<run>")
    try:
        config = OmegaConf.load(path)
        run_id(config)
    except Exception as error:  # whatever a damaged file, or one of other code, makes them raise
        raise InputError(_damaged(path, error)) from None
    if "task" not in config:
        raise InputError(f"{path}: no config of a run (it names no task); give outputs/<run>")
    return config


def read_result(folder: Path) -> dict[str, Any] | None:
    """``result.json``; None where the run has none yet.

    Raises:
        InputError: it is damaged.
    """
    path = folder / "result.json"
    if not path.exists():
        return None
    try:
        result = json.loads(path.read_bytes())
        final_numbers(result)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(_damaged(path, error)) from None
    return result


def _damaged(path: Path, error: Exception) -> str:
    reason = str(error).split("\n")[0][:80]
    return f"{path}: cannot be read ({reason}); run the command of this run again"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, help="run folders")
    parser.add_argument("--project", default="oversmoothing", help="W&B project")
    parser.add_argument(
        "--mode",
        choices=("offline", "online"),
        default="offline",
        help="offline writes files for `wandb sync`; online needs `wandb login`",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
