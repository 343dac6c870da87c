"""Sends run folders to W&B, each under the id of its run.

    python scripts/wandb_replay.py outputs/nodes-* --mode online
    python scripts/wandb_replay.py outputs/nodes-cora-centered-layernorm-64cb295df6 --project mine

It reads `config.yaml`, `metrics.jsonl`, which becomes the history, and `result.json`, which becomes
the summary. Online, rows that W&B already has are not sent again, so the command can be repeated.
Exit codes: 0 if all were sent, 2 if a folder is missing or damaged (the others are sent).
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from oversmoothing.errors import InputError
from oversmoothing.lab.launch.flags import add_trust
from oversmoothing.lab.launch.script import run_script
from oversmoothing.lab.store.wandb_replay import replay


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders")
    parser.add_argument("--project", default="oversmoothing", help="W&B project")
    modes = "offline writes files for `wandb sync`; online needs `wandb login`"
    parser.add_argument("--mode", choices=("offline", "online"), default="offline", help=modes)
    add_trust(parser)
    options, failed = parser.parse_args(), False
    for folder in dict.fromkeys(options.folders):
        try:
            print(replay(folder, options.project, options.mode, options.trust), flush=True)
        except InputError as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
    return 2 if failed else 0


if __name__ == "__main__":
    run_script(main)
