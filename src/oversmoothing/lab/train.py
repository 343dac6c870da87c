"""Trains and measures: composes and checks configs from the command line, then runs them.

    oversmoothing train              # oversmoothing and a cure on a small graph, in seconds
    oversmoothing train experiment=gnn_table5 data=cora backbone.depth=16

In a checkout ``python train.py`` does the same. Finished runs are skipped. Exit codes: 0 if every
run has its result, 1 if a run failed, 2 for bad input, 130 after Ctrl-C, 143 after SIGTERM.
"""

import os
import sys

from oversmoothing import __version__
from oversmoothing.errors import InputError, complain, install
from oversmoothing.lab.processes import follow_parent

FIRST = ["experiment=first_look"]  # a command that does not say what to train
HOW = ("device", "threads", "deterministic", "matmul", "checkpoint_seconds", "paths", "logger")
LEARNT = """
At 8 layers a GCN with LayerNorm oversmooths: its nodes become alike, and it does no better than
chance. With centered aggregation it learns. Other networks and methods; --help lists all:
    python train.py -m backbone=gcn,gcnii aggregator@then=none,pairnorm backbone.depth=8
"""


def main() -> int:
    """Checks the command and runs its configs, directly or by Hydra's launcher or sweeper."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        follow_parent()
    if "--version" in sys.argv[1:]:
        print(f"oversmoothing {__version__}")
        return 0
    try:
        from oversmoothing.lab.launch.command import command, run_all, run_by_hydra, unfinished
    except ModuleNotFoundError as error:
        complain(f"train: needs {error.name}; {install('repro')}")
        return 2
    if os.environ.get("RANK", "0") != "0":  # under torchrun only process 0 prints
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        checked = command(words := completed(asked := sys.argv[1:]))
    except InputError as refused:
        complain(*refused.lines)
        return 2
    if checked.hydra is not None:
        run_by_hydra(checked.hydra)
        return 1 if unfinished(checked.configs) else 0
    failed = run_all(checked.configs, swept=checked.swept)
    if failed:
        complain(f"{len(failed)} of {len(checked.configs)} runs have no result")
    elif words is not asked:  # the first look as it is, without options that change it
        print(LEARNT, end="")
    return 1 if failed else 0


def completed(words: list[str]) -> list[str]:
    """Adds the first look to words that only say how to run, such as ``device=cpu``, or to none."""
    return words if [word for word in words if not word.startswith(HOW)] else [*FIRST, *words]
