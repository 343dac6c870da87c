"""Trains and measures: composes configs from the command line, checks them, runs what is missing.

    python train.py experiment=gnn_table5 data=cora backbone.depth=16 aggregator=centered
    python train.py -m aggregator=centered aggregator.gamma=-1.5,-1,-0.5,0 backbone.depth=2,8,32
    torchrun --nproc-per-node=2 train.py experiment=wsss_voc

Exit codes: 0 if every run has its result, 1 if a run failed, 2 for bad input.
"""

import os
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from oversmoothing.errors import Problems, complain, one_line_warnings
from oversmoothing.launch.attempts import attempt, run_all, trial, unfinished
from oversmoothing.launch.command import CONFIGS, command


@hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name="config")
def run(config: DictConfig) -> float | None:
    """Runs one config for Hydra; returns its metric to a sweeper that chooses the configs."""
    if HydraConfig.get().runtime.choices["hydra/sweeper"] != "basic":
        return trial(config)
    attempt(config, wait=True)
    return None


def main() -> int:
    """Checks the command and runs its configs, or lets Hydra's launcher or sweeper run them."""
    one_line_warnings()
    if os.environ.get("RANK", "0") != "0":  # under torchrun only process 0 prints
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        checked = command(sys.argv[1:])
    except Problems as problems:
        complain(*problems.lines)
        return 2
    if checked.hydra is not None:
        sys.argv[1:] = checked.hydra
        run()
    else:
        run_all(checked.configs, start=checked.start)
    return 1 if checked.configs and unfinished(checked.configs) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the same command continues from the last checkpoints")
