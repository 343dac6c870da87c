"""Compares methods against oversmoothing by depth, graph and network: ``make cures``.

    python scripts/figure.py cures
    python scripts/figure.py cures --graphs Cora --layers 2 8 --methods none residual
    python scripts/figure.py cures --plan

Cells that are measured, in ``results/cures.csv`` or in the output folder, are not run again. After
every cell the CSV is written; table and figure follow at the end, also when the study is stopped.
"""

from oversmoothing.papers.cures.main import main

__all__ = ["main"]
