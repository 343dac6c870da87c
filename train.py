"""The single entrypoint: composes a config, checks it, and runs what its store lacks.

    python train.py experiment=gnn_table5 data=cora backbone.depth=16 aggregator=centered
    python train.py -m aggregator=centered aggregator.gamma=-1.5,-1,-0.5,0 backbone.depth=2,8,32

Exit codes: 0 every run has its result, 1 some run failed, 2 bad input.
"""

import sys

import hydra
from omegaconf import DictConfig

from oversmoothing import check
from oversmoothing.errors import InputError
from oversmoothing.execute import execute, finished
from oversmoothing.runs import Busy
from oversmoothing.summary import summary

busy: list[DictConfig] = []


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def run(config: DictConfig) -> None:
    """One run; what another process is at is left for later."""
    already = finished(config)
    try:
        print(summary(execute(config), already), flush=True)
    except Busy as other:
        print(f"{other}: left for later", flush=True)
        busy.append(config)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)


def main() -> int:
    """Checks the whole command before any work, then lets Hydra run it."""
    try:
        configs = check.command(sys.argv[1:])
    except check.Problems as problems:
        print(*(f"error: {problem}" for problem in problems.lines), sep="\n", file=sys.stderr)
        return 2
    run()
    for config in busy:
        print(summary(execute(config, wait=True), already=True), flush=True)
    missing = [config for config in configs if not finished(config)]
    if missing:
        print(f"error: {len(missing)} of {len(configs)} runs have no result", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
