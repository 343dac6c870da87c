"""Compares methods against oversmoothing by depth, graph and network: ``make cures``.

    python scripts/figure.py cures
    python scripts/figure.py cures --graphs Cora --layers 2 8 --methods none residual
    python scripts/figure.py cures --plan

Cells with results in ``results/cures.csv`` or in the output folder are skipped. The CSV is written
after every cell; table and figure are written at the end, also if the study is stopped.
"""

from oversmoothing.lab.papers.cures.main import main

__all__ = ["main"]
