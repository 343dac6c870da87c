"""Trains and measures: composes configs from the command line, checks them, runs what is missing.

    python train.py experiment=gnn_table5 data=cora backbone.depth=16 aggregator=centered
    python train.py -m aggregator=none,centered aggregator@then=layernorm backbone.depth=2,8,32
    torchrun --nproc-per-node=2 train.py experiment=wsss_voc

The code is in `src/oversmoothing/lab/train.py`.
"""

import sys

from oversmoothing.__main__ import cli

if __name__ == "__main__":
    sys.argv.insert(1, "train")
    cli()
