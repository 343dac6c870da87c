"""The single entrypoint: composes a config, checks it, and runs what its store lacks.

    python train.py experiment=gnn_table5 data=cora backbone.depth=16 aggregator=centered
    python train.py -m aggregator=centered aggregator.gamma=-1.5,-1,-0.5,0 backbone.depth=2,8,32
    torchrun --nproc-per-node=2 train.py experiment=wsss_voc

Exit codes: 0 every run has its result, 1 some run failed, 2 bad input.
"""

import os
import sys
import traceback

import hydra
from omegaconf import DictConfig

from oversmoothing import check
from oversmoothing.errors import InputError, one_line_warnings
from oversmoothing.summary import summary

busy: list[DictConfig] = []


@hydra.main(version_base="1.3", config_path=str(check.CONFIGS), config_name="config")
def run(config: DictConfig) -> None:
    """One run; what another process is at is left for later."""
    attempt(config, wait=False)


def attempt(config: DictConfig, wait: bool) -> None:
    """One run; a failure is reported and ends no sweep."""
    from oversmoothing.claims import Busy
    from oversmoothing.execute import execute, finished, run_folder  # torch takes a second

    name, already = run_folder(config).name, finished(config)
    try:
        print(summary(execute(config, wait), already), flush=True)
    except Busy as other:
        print(f"{other}: left for later", flush=True)
        busy.append(config)
    except InputError as error:
        print(f"error: {name}: {error}", file=sys.stderr)
    except Exception as error:
        traceback.print_exc()
        print(f"error: {name}: {type(error).__name__}, see above", file=sys.stderr)


def main() -> int:
    """Checks the whole command before any work; Hydra starts runs for its other launchers only."""
    one_line_warnings()
    if os.environ.get("RANK", "0") != "0":  # under torchrun process 0 speaks
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        command = check.command(sys.argv[1:])
    except check.Problems as problems:
        print(*(f"error: {line}" for line in problems.lines), sep="\n", file=sys.stderr)
        return 2
    if command.hydra is not None:
        sys.argv[1:] = command.hydra
        run()
    else:
        for config in command.configs:
            run(config)
    for config in list(busy):
        attempt(config, wait=True)
    return 1 if command.configs and unfinished(command.configs) else 0


def unfinished(configs: list[DictConfig]) -> int:
    """How many runs have no result, which is also said."""
    from oversmoothing.execute import finished

    missing = sum(not finished(config) for config in configs)
    if missing:
        print(f"error: {missing} of {len(configs)} runs have no result", file=sys.stderr)
    return missing


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from the last checkpoints")
