"""The single entrypoint: composes a config, checks it, and runs what its store lacks.

    python train.py experiment=gnn_table5 data=cora backbone.depth=16 aggregator=centered
    python train.py -m aggregator=centered aggregator.gamma=-1.5,-1,-0.5,0 backbone.depth=2,8,32
    torchrun --nproc-per-node=2 train.py experiment=wsss_voc

Exit codes: 0 every run has its result, 1 some run failed, 2 bad input.
"""

import os
import sys

import hydra
from omegaconf import DictConfig

from oversmoothing.errors import one_line_warnings
from oversmoothing.launch import command as check
from oversmoothing.launch.attempts import attempt, complain, run_all, unfinished


@hydra.main(version_base="1.3", config_path=str(check.CONFIGS), config_name="config")
def run(config: DictConfig) -> None:
    """Runs one config that Hydra composed."""
    attempt(config, wait=True)


def main() -> int:
    """Checks the whole command before any work; Hydra starts runs for its other launchers only."""
    one_line_warnings()
    if os.environ.get("RANK", "0") != "0":  # under torchrun process 0 speaks
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        command = check.command(sys.argv[1:])
    except check.Problems as problems:
        complain(*problems.lines)
        return 2
    if command.hydra is not None:
        sys.argv[1:] = command.hydra
        run()
    else:
        run_all(command.configs, start=command.start)
    return 1 if command.configs and unfinished(command.configs) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from the last checkpoints")
